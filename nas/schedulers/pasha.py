"""PASHA: successive halving that trains longer only while longer training changes the ranking.

Bohdal et al. 2023, "PASHA: Efficient HPO and NAS with Progressive Resource Allocation", https://arxiv.org/abs/2207.06940.
At first trials continue to the second level at most. If the two highest levels that are in use rank their common trials
differently, the next level is opened. Two values within `tolerance` of each other count as equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from nas.options import Number, Rungs
from nas.schedulers.contract import Promotion
from nas.schedulers.halving import CORRECTED, Factor, Halving, PoorRungs
from nas.schedulers.rank import OLDER, QUALITY, CostLimits, Rank, Ties
from nas.schedulers.registry import scheduler

Results = dict[int, float]


@scheduler("pasha")
class Pasha(Halving):
    """The options are those of `halving`. tolerance: differences of the first ranked value that do not count."""

    def __init__(
        self,
        *,
        rungs: Rungs,
        factor: Factor = 3,
        tolerance: Number = 0.0,
        rank: Rank = QUALITY,
        cost_limits: CostLimits | None = None,
        poor_rungs: PoorRungs = CORRECTED,
        ties: Ties = OLDER,
        objectives: Mapping[str, str] | None = None,
    ) -> None:
        given: dict[str, Any] = {"rank": rank, "cost_limits": cost_limits, "objectives": objectives}
        super().__init__(rungs=rungs, factor=factor, poor_rungs=poor_rungs, ties=ties, **given)
        self.tolerance = tolerance
        self.highest = min(1, len(rungs) - 1)  # the level that trials continue to at most
        self._values: list[Results] = [{} for _ in rungs]

    def tell(self, number: int, rung: int, values: tuple[float, ...] | None, steps: int) -> None:
        super().tell(number, rung, values, steps)
        level = self._level(steps)
        ranked = None if values is None else self.ranking.values(values)
        if ranked is None:
            self._values[level].pop(number, None)
            return
        self._values[level][number] = ranked[0]
        changed: Iterable[int] = (number,) if level in (self.highest - 1, self.highest) else ()
        while self.highest + 1 < len(self.levels) and self._differ(changed):
            self.highest += 1
            changed = self._values[self.highest]

    def promotion(self) -> Promotion | None:
        for level in range(self.highest - 1, -1, -1):
            found = self._promoted_from(level)
            if found is not None:
                return found
        return None

    def _differ(self, numbers: Iterable[int]) -> bool:
        """Whether the highest level in use ranks one of these trials and any other otherwise than the level below."""
        above, below = self._values[self.highest], self._values[self.highest - 1]
        return any(
            abs(above[one] - above[other]) > self.tolerance
            and abs(below[one] - below[other]) > self.tolerance
            and (above[one] > above[other]) == (below[one] < below[other])
            for one in numbers
            if one in above and one in below
            for other in above
            if other in below
        )
