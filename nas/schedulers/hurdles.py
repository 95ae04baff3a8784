"""Progressive dynamic hurdles: a trial trains further as long as it is better than the mean of those before it.

So et al. 2019, "The Evolved Transformer", https://arxiv.org/abs/1901.11117, section 3.3. The first `wait` trials train
to the first level. The mean of their first objective is the first hurdle. Each later trial that is better than the
hurdle of its level trains to the next level at once. When `wait` more trials have ended at the first level and some
have reached the new highest one, the mean of these is the next hurdle. So the length of training grows with the search,
and an early trial is never trained further. Fitness is the value at the highest level that a trial reached.

The mean of the paper is that of the population, from which tournaments remove the worst models soon. Here all trials
count, so a loss beyond Tukey's upper fence (third quartile plus 1.5 times the interquartile range) counts as the fence.
Otherwise a single run that diverged could lift the hurdle above all others for good.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left
from itertools import pairwise
from statistics import fmean

from nas.options import Rungs, Trials
from nas.schedulers.contract import Level, Promotion
from nas.schedulers.registry import scheduler
from nas.statistics.fence import fence


@scheduler("hurdles")
class Hurdles:
    """rungs: training steps, in all, at each level, ascending. wait: trials between two hurdles."""

    def __init__(self, *, rungs: Rungs, wait: Trials = 20) -> None:
        for lower, higher in pairwise(rungs):
            if higher <= lower:
                raise ValueError(f"rungs must ascend, but {lower} is followed by {higher}.")
        self.levels, self.wait = rungs, wait
        self.hurdles: list[float] = []  # by level
        self._since: list[int] = []  # by level: the first trial that has to take the hurdle
        self._trials = 0
        self._ended = 0  # trials that ended at the first level, failures too
        self._seen: list[list[float]] = [[] for _ in rungs]
        self._rungs: dict[int, int] = {}  # trial -> its newest rung
        self._ready: list[tuple[int, int]] = []  # (number, level) of trials that took their hurdle
        self._further: set[tuple[int, int]] = set()  # (number, level) of trials that were promoted, or failed later

    def start(self, number: int) -> int:
        return self.levels[0]

    def tell(self, number: int, rung: int, values: tuple[float, ...] | None, steps: int) -> None:
        level = self._level(steps)
        self._rungs[number] = rung
        self._ended += level == 0
        if values is None or not math.isfinite(values[0]):
            self._further.add((number, level))  # a failed trial never continues
        else:
            self._seen[level].append(values[0])
            hurdle = self.hurdles[level] if level < len(self.hurdles) else -math.inf
            if values[0] < hurdle and number >= self._since[level]:
                heapq.heappush(self._ready, (number, level))
        self._raise()

    def started(self, number: int, rung: int, steps: int) -> None:
        self._trials = max(self._trials, number + 1)
        self._rungs[number] = max(rung, self._rungs.get(number, 0))
        level = self._level(steps)
        if level > 0:
            self._further.add((number, level - 1))

    def promotion(self) -> Promotion | None:
        ready = next((each for each in sorted(self._ready) if each not in self._further), None)
        if ready is None:
            return None
        number, level = ready
        return Promotion(number, self._rungs[number] + 1, self.levels[level + 1])

    def is_last(self, number: int, rung: int, steps: int) -> bool:
        return steps >= self.levels[-1]

    def horizon(self, number: int) -> int:
        return self.levels[-1]

    def forecast(self, trials: int) -> tuple[Level, ...]:
        """Half of the trials after a hurdle are expected to take it."""
        found = [Level(trials, 0, self.levels[0])]
        for level, (lower, higher) in enumerate(pairwise(self.levels)):
            after = max(0, trials - self.wait * (level + 1))
            found.append(Level(min(found[-1].units, math.ceil(after / 2 ** (level + 1))), lower, higher))
        return tuple(found)

    def _raise(self) -> None:
        """Add a hurdle if it is time."""
        level = len(self.hurdles)
        if level < len(self.levels) - 1 and self._ended >= self.wait * (level + 1) and self._seen[level]:
            values = self._seen[level]
            self.hurdles.append(_mean(_fenced(values)))
            self._since.append(self._trials)
        self._ready = [each for each in self._ready if each not in self._further]

    def _level(self, steps: int) -> int:
        return min(bisect_left(self.levels, steps), len(self.levels) - 1)


def _fenced(values: list[float]) -> list[float]:
    """`values`, none of them beyond the fence."""
    limit = fence(values)
    return [min(each, limit) for each in values]


def _mean(values: list[float]) -> float:
    try:
        return fmean(values)
    except OverflowError:  # a loss that diverged may be finite, and the sum of two may not
        return math.fsum(each / len(values) for each in values)
