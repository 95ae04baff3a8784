"""How long a search will still take, from the units that have ended while this process watched."""

from __future__ import annotations

from statistics import fmean

from nas.config.schema import SearchConfig
from nas.engine.forecast import forecast

LEAST = 2  # units that must have ended before a guess is worth saying


class Remaining:
    """Learns what a unit of each rung takes, and how many run at once. A guess: later rungs take longer."""

    def __init__(self, config: SearchConfig):
        self.config = config
        self.forecast = forecast(config)
        self._seconds: dict[tuple[str, int], list[float]] = {}
        self._busy = 1

    def busy(self, running: int) -> None:
        """So many units run now."""
        self._busy = max(self._busy, running)

    def ended(self, purpose: str, rung: int, seconds: float) -> None:
        """A unit took so long."""
        self._seconds.setdefault((purpose, rung), []).append(seconds)

    def search(self, tried: int, trained_seconds: float) -> float | None:
        """Seconds until no trial is begun and none goes on: by the budget of trials, or of minutes where it is less."""
        if sum(map(len, self._seconds.values())) < LEAST:
            return None
        share = max(0, self.config.budget.trials - tried) / self.config.budget.trials
        work = sum(share * count * self._unit("search", rung) for rung, count in enumerate(self.forecast.units))
        minutes = self.config.budget.minutes
        if minutes is not None:
            work = min(work, max(0.0, minutes * 60 * (self.forecast.workers or self._busy) - trained_seconds))
        return work / self._workers()

    def finals(self, ended: int) -> float | None:
        """Seconds until the finals are over."""
        if not self._seconds:
            return None
        left = max(0, self.forecast.final_units - ended)
        waves = -(-left // self._workers())  # whole ones: the last unit is waited for
        return waves * self._unit("final", 0)

    def _workers(self) -> int:
        return max(1, min(self._busy, self.forecast.workers or self._busy))

    def _unit(self, purpose: str, rung: int) -> float:
        """What a unit takes: as seen, else as its steps would take at the pace of the others."""
        seen = self._seconds.get((purpose, rung))
        if seen:
            return fmean(seen)
        steps = self.forecast.final_steps if purpose == "final" else self.forecast.steps[rung]
        return steps * self._pace()

    def _pace(self) -> float:
        """Seconds a step over all that has ended."""
        steps = seconds = 0.0
        for (purpose, rung), seen in self._seconds.items():
            each = self.forecast.final_steps if purpose == "final" else self.forecast.steps[rung]
            steps, seconds = steps + each * len(seen), seconds + sum(seen)
        return seconds / steps if steps else 0.0
