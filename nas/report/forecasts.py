"""The remaining time of a search: from the expected number of units left, and the times of similar units so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from nas.report.activity import Activity, UnitProgress, progress
from nas.report.spending import spending
from nas.store import FINAL

if TYPE_CHECKING:
    from nas.config.schema import SearchConfig
    from nas.engine.forecast import Forecast
    from nas.store import Pace, Reader, Study

FEWEST = 2  # units that must have ended before an estimate is worth showing


@dataclass(frozen=True)
class Eta:
    """An estimate: `seconds` until `phase` (search or finals) ends, for about `units` more units on `workers` workers.

    `finals_follow`: the finals come after the search and are not included.
    """

    seconds: float
    phase: str
    units: int
    workers: int
    finals_follow: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def eta(
    store: Reader, study: Study, config: SearchConfig | None = None, units: Sequence[UnitProgress] | None = None
) -> Eta | None:
    """When the search or the finals of `study` will end; None if too few units have ended to tell.

    config: the search file; None is the one that the study stored. units: from `progress`; None reads them. Failed
    units do not count, because the time until they fail says little about the others.
    """
    from nas.config.schema import SearchConfig  # pydantic: only a running study needs it
    from nas.engine.forecast import forecast

    config = config or SearchConfig.stored(study.config)
    units = progress(store, study) if units is None else units
    running = sum(each.activity is Activity.RUNNING for each in units)
    ahead = forecast(config)
    workers = max(1, min(running or ahead.workers or 1, ahead.workers or running or 1))
    paces = Paces(store.pace(study.id), ahead)
    if paces.finals or any(unit.final is not None for unit in units):
        return _of_finals(paces, ahead, workers)
    if paces.ended < FEWEST:
        return None
    trained = store.trained_seconds(study.id, "search")
    share = spending(store, study).share
    if config.budget.trials is None and not share:
        return None
    return _of_search(paces, ahead, workers, config, trained, share)


def _of_search(
    paces: Paces, ahead: Forecast, workers: int, config: SearchConfig, trained: float, share: float | None
) -> Eta:
    """The estimate for the search. share: of the limits on training that is spent; None if there is no such limit."""
    left = [max(0, expected - paces.units("search", rung)) for rung, expected in enumerate(ahead.units)]
    units, work = sum(left), sum(units * paces.seconds("search", rung) for rung, units in enumerate(left))
    if share and (config.budget.trials is None or trained * (1 / share - 1) < work):
        work = trained * max(0.0, 1 / share - 1)
        units = round(work * paces.ended / trained) if trained else 0
    if config.budget.minutes is not None:
        work = min(work, max(0.0, config.budget.minutes * 60 * (ahead.workers or workers) - trained))
    return Eta(work / workers, "search", units, workers, finals_follow=config.finals.top > 0)


def _of_finals(paces: Paces, ahead: Forecast, workers: int) -> Eta | None:
    if not paces.ended:
        return None
    left = [max(0, each.units - paces.units(FINAL, level)) for level, each in enumerate(ahead.finals)]
    work = sum(units * paces.seconds(FINAL, level) for level, units in enumerate(left))
    return Eta(work / workers, "finals", sum(left), workers)


class Paces:
    """The times of units so far, by purpose and level of the forecast."""

    def __init__(self, seen: list[Pace], ahead: Forecast):
        self.ahead = ahead
        self._seen: dict[tuple[str, int], tuple[int, float]] = {}
        for each in seen:
            key = each.purpose, self._level(each)
            units, seconds = self._seen.get(key, (0, 0.0))
            self._seen[key] = units + each.units, seconds + each.seconds

    @property
    def ended(self) -> int:
        """The number of units that ended."""
        return sum(units for units, _ in self._seen.values())

    @property
    def finals(self) -> bool:
        """Whether a unit of the finals ended."""
        return any(purpose == FINAL for purpose, _ in self._seen)

    def units(self, purpose: str, level: int) -> int:
        """The number of units of this level that ended."""
        return self._seen.get((purpose, level), (0, 0.0))[0]

    def seconds(self, purpose: str, level: int) -> float:
        """Seconds of one unit: the mean of those that ended, else its steps at the mean pace of all units."""
        units, seconds = self._seen.get((purpose, level), (0, 0.0))
        return seconds / units if units else self._steps(purpose, level) * self._seconds_a_step()

    def _level(self, pace: Pace) -> int:
        """The level of the forecast that units with these steps belong to; if there is none, the nearest level.

        Two levels may end at the same steps but start at different ones.
        """
        if pace.purpose == FINAL:
            ends, starts = [each.steps for each in self.ahead.finals], [0] * len(self.ahead.finals)
        else:
            ends, starts = list(self.ahead.rungs), list(self.ahead.starts)
        return min(
            range(len(ends)),
            key=lambda level: (abs(ends[level] - pace.steps), abs(starts[level] - pace.start), level != pace.rung),
        )

    def _steps(self, purpose: str, level: int) -> int:
        return self.ahead.finals[level].steps if purpose == FINAL else self.ahead.steps[level]

    def _seconds_a_step(self) -> float:
        steps = sum(self._steps(*key) * units for key, (units, _) in self._seen.items())
        return sum(seconds for _, seconds in self._seen.values()) / steps if steps else 0.0
