"""Asynchronous successive halving: the best 1/factor of a level continue to the next.

Li et al. 2020, "A System for Massively Parallel Hyperparameter Tuning" (ASHA), https://arxiv.org/abs/1810.05934,
algorithm 2: a level does not wait until it is full. If a worker is free, the highest level with an unpromoted trial
among its best promotes it. `nas.schedulers.rank` says what is best; ties go to the older trial.

The lowest level is of use only if it ranks trials as the next one does. Of the trials that reached both, the rank
correlation is computed with its interval. Trials that continue were chosen by their rank, so their correlation is lower
than that of all trials. If the interval includes 0, and the correlation of all trials, estimated from it, is below
`USEFUL`, later trials start at the next level.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Annotated, Literal

from nas.options import Field, Number, Rungs
from nas.schedulers.contract import Level, Promotion
from nas.schedulers.order import Order
from nas.schedulers.rank import QUALITY, CostLimits, Rank, Ranking
from nas.schedulers.registry import scheduler
from nas.statistics.rank_correlation import correlation, of_all

FIRST = 20  # trials that reached the lowest two levels, before their ranks are compared
GROWTH = 1.5  # of their number until the next comparison
USEFUL = 0.5  # a rank correlation of all trials at two levels from which on the lower one is worth its cost
PoorRungs = Literal["skipped", "kept"]
SKIPPED: PoorRungs = "skipped"
Factor = Annotated[Number, Field(gt=1, le=1_000_000)]


class Rung:
    """The results at one level, and which of its trials were promoted."""

    def __init__(self, ranking: Ranking) -> None:
        self._ranking = ranking
        self._results: dict[int, tuple[float, ...] | None] = {}  # what is ranked; None: cannot continue
        self._promoted: set[int] = set()
        self._order: Order | None = None  # of the trials with values; None while there are none

    def tell(self, number: int, values: tuple[float, ...] | None) -> None:
        ranked = None if values is None else self._ranking.values(values)
        is_new = number not in self._results
        self._results[number] = ranked
        if is_new:
            self._add(number, ranked)
        else:
            self._order = None
            for each in self._results.items():
                self._add(*each)

    def promote(self, number: int) -> None:
        self._promoted.add(number)
        if self._order is not None:
            self._order.promote(number)

    def candidate(self, factor: float) -> int | None:
        """The best unpromoted trial, if it is among the best 1/factor of the finished ones."""
        return None if self._order is None else self._order.candidate(int(len(self._results) / factor))

    def _add(self, number: int, values: tuple[float, ...] | None) -> None:
        if values is None:
            return
        if self._order is None:
            self._order = self._ranking.order(values)
        if number in self._promoted:
            self._order.promote(number)
        self._order.add(number, values)


@scheduler("halving")
class Halving:
    """rungs: training steps, in all, at each level, ascending. factor: one trial in `factor` continues. rank and
    cost_limits: see `nas.schedulers.rank`. poor_rungs: whether later trials skip a lowest level that does not rank
    trials. objectives: {name: direction} of the search.

    A failure counts as a finished trial, so a level where trials fail still promotes; a failed trial never continues.
    The same holds for a trial beyond a limit.
    """

    def __init__(
        self,
        *,
        rungs: Rungs,
        factor: Factor = 3,
        rank: Rank = QUALITY,
        cost_limits: CostLimits | None = None,
        poor_rungs: PoorRungs = SKIPPED,
        objectives: Mapping[str, str] | None = None,
    ) -> None:
        for lower, higher in pairwise(rungs):
            if higher <= lower:
                raise ValueError(f"rungs must ascend, but {lower} is followed by {higher}.")
        self.levels = rungs
        self.factor = factor
        self.ranking = Ranking(rank, cost_limits or {}, objectives)
        self._levels = [Rung(self.ranking) for _ in rungs]
        self._last: dict[int, int] = {}  # trial -> its highest rung so far
        self._poor_rungs = poor_rungs
        self._first: dict[int, float] = {}  # trial -> the first ranked value at the level where trials start
        self._second: dict[int, float] = {}  # the same at the next level
        self._compared = FIRST  # trials of both at the next comparison
        self._starts = [0]  # for each level where trials start: the first trial that starts there

    def start(self, number: int) -> int:
        return self.levels[bisect_right(self._starts, number) - 1]

    def tell(self, number: int, rung: int, values: tuple[float, ...] | None, steps: int) -> None:
        self._last[number] = max(rung, self._last.get(number, 0))
        level = self._level(steps)
        self._levels[level].tell(number, values)
        if self._poor_rungs != "kept":
            self._compare(number, level, None if values is None else self.ranking.values(values))

    def started(self, number: int, rung: int, steps: int) -> None:
        self._last[number] = max(rung, self._last.get(number, 0))
        level = self._level(steps)
        if level > 0:
            self._levels[level - 1].promote(number)

    def _compare(self, number: int, level: int, ranked: tuple[float, ...] | None) -> None:
        """Let later trials start one level higher if the ranks at the two levels have nothing to do with each other."""
        lowest = len(self._starts) - 1
        if ranked is None or lowest + 2 >= len(self.levels) or level not in (lowest, lowest + 1):
            return
        (self._first if level == lowest else self._second)[number] = ranked[0]
        if min(len(self._first), len(self._second)) < self._compared:
            return  # without a look at all of them for each result
        both = [each for each in self._second if each in self._first]
        if len(both) < self._compared:
            return
        self._compared = int(GROWTH * len(both))
        found = correlation([self._first[each] for each in both], [self._second[each] for each in both])
        if found is not None and found.low <= 0 and not self._may_be_useful(found.value, both):
            self._starts.append(1 + max(self._last))
            self._first, self._second, self._compared = self._second, {}, FIRST

    def _may_be_useful(self, found: float, chosen: Iterable[int]) -> bool:
        """Whether the rank correlation `found` of the chosen trials may be that of a level which ranks all trials."""
        return of_all(found, chosen, self._first) >= USEFUL

    def promotion(self) -> Promotion | None:
        found = (self._promoted_from(level) for level in range(len(self.levels) - 2, -1, -1))
        return next(filter(None, found), None)

    def _promoted_from(self, level: int) -> Promotion | None:
        """The trial of a level that should continue to the next."""
        number = self._levels[level].candidate(self.factor)
        return None if number is None else Promotion(number, self._last[number] + 1, self.levels[level + 1])

    def is_last(self, number: int, rung: int, steps: int) -> bool:
        return steps >= self.levels[-1]

    def horizon(self, number: int) -> int:
        return self.levels[-1]

    def forecast(self, trials: int) -> tuple[Level, ...]:
        found = [Level(trials, 0, self.levels[0])]
        for lower, higher in pairwise(self.levels):
            found.append(Level(self._continuing(found[-1].units), lower, higher))
        return tuple(found)

    def _continuing(self, trials: int) -> int:
        """How many of a level continue: the best 1/factor, and those that were among the best only when they ended.
        The latter are about half the square root of all (for factors from 1.5 to 10, benchmarks/README.md)."""
        best = int(trials / self.factor)
        return min(trials, best + max(0, round(math.sqrt(trials) / 2 - 1))) if best else 0

    def _level(self, steps: int) -> int:
        """The level of a unit that trains to `steps`. A unit that ended early belongs to the level it was to reach."""
        return min(bisect_left(self.levels, steps), len(self.levels) - 1)
