"""What a person sees while a search runs: a live line on a terminal, plain lines elsewhere; always on stderr."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from nas.config.schema import SearchConfig
from nas.report.eta import Remaining
from nas.report.tables import duration, short
from nas.runners.contract import Progress
from nas.store import Store, Study, TrialState, Unit, UnitState
from nas.work import Failure, Outcome

LINE_SECONDS = 15.0  # between two plain lines about the running units
LIVE_SECONDS = 0.5  # between two looks into the store for the live line
SHARE = 20  # a look into the store may take this part of the time, however large the study
REASON = 200  # characters of a failure that are shown; the store keeps all of it


@dataclass
class Reporter:
    """Tells how a search goes. `budget` is the number of trials it will have; counts come from the store.

    With `config` it says how much time is left too.
    """

    store: Store
    study: Study
    budget: int
    objective: str
    maximize: bool = False
    stream: TextIO = field(default_factory=lambda: sys.stderr)
    quiet: bool = False
    config: SearchConfig | None = None

    def __post_init__(self) -> None:
        self._console = Console(file=self.stream, highlight=False, soft_wrap=True)
        self._live: Live | None = None
        self._began = self._last = time.monotonic()
        self._interval = 0.0
        self._ended = 0
        self._best: tuple[int, float] | None = None  # rung and value: a higher rung says more than a better value
        self._remaining = Remaining(self.config) if self.config else None

    def __enter__(self) -> Reporter:
        self._recall()
        if self._console.is_terminal and not self.quiet:
            self._live = Live(Text(""), console=self._console, refresh_per_second=4, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()
            self._live = None

    def say(self, text: str) -> None:
        """One line for people."""
        if not self.quiet:
            self._console.print(text, markup=False)

    def ended(self, unit: Unit, values: Mapping[str, float], failure: Failure | None, outcome: Outcome) -> None:
        """A unit ended."""
        self._ended += 1
        if failure is not None:
            self.say(f"{_name(unit)}: {failure.kind}: {reason(failure.message)}")
            return
        if self._remaining:  # a failure, at whatever point it came, says little about what a unit takes
            self._remaining.ended(unit.purpose, unit.rung, outcome.seconds)
        if unit.purpose == "search" and self.objective in values:
            self._consider(unit.rung, values[self.objective])
        if unit.purpose == "final" or not self._live:
            scores = ", ".join(f"{key} {short(value)}" for key, value in values.items())
            self.say(f"{_name(unit)}: {scores} ({outcome.seconds:.1f} s)")

    def tick(self, progress: Mapping[tuple[int, int], Progress]) -> None:
        """Called often; says something when it is time."""
        if self._remaining:
            self._remaining.busy(len(progress))
        now = time.monotonic()
        if self.quiet or now - self._last < max(self._interval, LIVE_SECONDS if self._live else LINE_SECONDS):
            return
        lines = self._lines(progress)
        self._last = time.monotonic()
        self._interval = SHARE * (self._last - now)
        if self._live:
            self._live.update(Text("\n".join(lines), no_wrap=True, overflow="ellipsis"))
        else:
            for line in lines:
                self.say(line)

    def _recall(self) -> None:
        """What earlier processes found."""
        if self.quiet:
            return
        states = (TrialState.COMPLETE, TrialState.RUNNING, TrialState.STOPPED)
        for best in self.store.best(
            self.study.id, self.objective, 1, states=states, purposes=("search",), highest_rung=True
        ):
            self._consider(best.rung or 0, best.values[self.objective])

    def _consider(self, rung: int, value: float) -> None:
        sign = 1 if self.maximize else -1
        if self._best is None or (rung, sign * value) > (self._best[0], sign * self._best[1]):
            self._best = rung, value

    def _lines(self, progress: Mapping[tuple[int, int], Progress]) -> list[str]:
        counts: dict[str, Counter[TrialState]] = {"search": Counter(), "final": Counter()}
        for count in self.store.counts(self.study.id):
            counts[count.purpose][count.state] += count.trials
        head = self._finals(counts["final"]) if counts["final"] else self._search(counts["search"])
        return [head, *(_running(key, each) for key, each in sorted(progress.items()))]

    def _search(self, counts: Counter[TrialState]) -> str:
        tried = counts.total()
        units = self.store.open_units(self.study.id)
        at_work = units[UnitState.RUNNING] + units[UnitState.QUEUED]
        between = max(0, counts[TrialState.RUNNING] + counts[TrialState.WAITING] - at_work)
        said = {
            "done": counts[TrialState.COMPLETE],
            "running": at_work,
            "paused": between,  # at a rung, until it is promoted or the search ends
            "failed": counts[TrialState.FAILED],
            "stopped": counts[TrialState.STOPPED],
        }
        always = ("done", "running", "failed")
        parts = [f"{tried}/{self.budget} trials: " + ", ".join(f"{n} {w}" for w, n in said.items() if n or w in always)]
        if self._best:
            parts.append(f"best {self.objective} {short(self._best[1])} (rung {self._best[0]})")
        parts.append(self._rate())
        if self._remaining:
            left = self._remaining.search(tried, self.store.trained_seconds(self.study.id, "search"))
            finals = self.config is not None and self.config.finals.top
            parts.append("" if left is None else f"about {duration(left)} {'to the finals' if finals else 'left'}")
        return " | ".join(part for part in parts if part)

    def _finals(self, counts: Counter[TrialState]) -> str:
        ended = counts[TrialState.COMPLETE] + counts[TrialState.FAILED]
        total = self._remaining.forecast.final_units if self._remaining else 0
        failed = counts[TrialState.FAILED]
        parts = [f"finals {ended}/{total}" if total else f"finals {ended} done"]
        parts += [f"{failed} failed" if failed else "", self._rate()]
        left = self._remaining.finals(ended) if self._remaining else None
        parts.append("" if left is None else f"about {duration(left)} left")
        return " | ".join(part for part in parts if part)

    def _rate(self) -> str:
        elapsed = time.monotonic() - self._began
        return f"{self._ended / elapsed * 60:.1f} units/min" if self._ended and elapsed > 0 else ""


def _name(unit: Unit) -> str:
    return f"trial {unit.number} " + (f"rung {unit.rung}" if unit.purpose == "search" else f"(final, seed {unit.seed})")


def _running(key: tuple[int, int], progress: Progress) -> str:
    trial, rung = key
    return (
        f"  trial {trial} rung {rung}: step {progress.step}/{progress.steps}, loss {progress.loss:.3f}, "
        f"{progress.tokens_per_second:,.0f} tokens/s"
    )


def reason(text: str) -> str:
    """The line of a failure that says what happened: the last one, as in a traceback."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    last = lines[-1] if lines else "no reason given"
    return last if len(last) <= REASON else last[: REASON - 3] + "..."
