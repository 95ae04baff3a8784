"""Learning-curve extrapolation: a trial stops when it is unlikely to become one of the best.

Domhan et al. 2015, "Speeding Up Automatic Hyperparameter Optimization of Deep Neural Networks by Extrapolation of
Learning Curves", stop a run if the probability that it beats the best one is below a threshold. Here the extrapolation
is learned from the trials that were trained to the end: a linear regression of their last value on their values so far,
over the most similar curves. Its errors give the distribution of the last value. The regression holds although only
promising trials are trained to the end, because these were chosen by the same values. Until `full` trials have ended,
all are trained to the end.

The regression uses logarithms of the distance of a loss from the lowest one, plus a constant. A loss approaches a
floor, so trials that are ahead gain less from more training than a line through all of them says.

A run may diverge with a finite loss. So at each level a loss beyond Tukey's upper fence counts as the fence; otherwise
a few such runs would be all that the regression explains.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from nas.options import Field, Fraction, Rungs, Trials
from nas.pareto import LARGEST
from nas.schedulers.contract import Level, Promotion
from nas.schedulers.registry import scheduler
from nas.statistics.fence import fence

FEWEST = 6  # complete curves before a trial is stopped
NEAREST = 48  # complete curves of one regression
RIDGE = 1e-3  # of the standardised slopes
SMOOTH = 0.9  # of the bandwidth (Silverman 1986, "Density Estimation", eq. 3.31)
RECORDS = 2.6  # of a forecast: trials that reach the end for each new record
Scale = Literal["logarithm", "plain"]
LOGARITHM: Scale = "logarithm"
STOPPED = 0.01  # below this probability


@scheduler("extrapolation")
class Extrapolation:
    """rungs: training steps, in all, at each level, ascending. probability: below it a trial stops. full: how many
    trials are trained to the end before that. rank: a trial has to reach the best first objective (quality), or that of
    the trials that are no worse in the other objectives (pareto). scale: of the values in the regression; "plain" is
    that of an earlier version. diverged: how a loss that is much larger than the others counts; "counted" as it is, as
    in an earlier version. objectives: {name: direction} of the search.

    stopped: by trial, (steps, probability, the value that it had to reach).
    """

    EARLIER: ClassVar[dict[str, Any]] = {"scale": "plain", "probability": 0.05, "diverged": "counted"}

    def __init__(
        self,
        *,
        rungs: Rungs,
        probability: Annotated[Fraction, Field(gt=0, lt=1)] = STOPPED,
        full: Annotated[Trials, Field(ge=FEWEST)] = 10,
        rank: Literal["quality", "pareto"] = "quality",
        scale: Scale = LOGARITHM,
        diverged: Literal["fenced", "counted"] = "fenced",
        objectives: Mapping[str, str] | None = None,
    ) -> None:
        for lower, higher in pairwise(rungs):
            if higher <= lower:
                raise ValueError(f"rungs must ascend, but {lower} is followed by {higher}.")
        self.levels, self.probability, self.full, self.rank = rungs, probability, full, rank
        self.settled: dict[str, Any] = {"scale": scale, "probability": probability, "diverged": diverged}
        self._below = chance_below if scale == "plain" else chance_below_by_logarithm
        self.stopped: dict[int, tuple[int, float, float]] = {}
        self._curves: dict[int, dict[int, float]] = {}  # trial -> level -> first objective
        self._others: dict[int, tuple[float, ...]] = {}  # trial -> its other objectives, newest
        self._complete: list[int] = []  # trials that reached the last level, in the order in which they did
        self._open: dict[int, int] = {}  # trial -> the level where it waits
        self._ready: dict[int, float] = {}  # trial that should continue -> its probability
        self._rungs: dict[int, int] = {}  # trial -> its newest rung

    def start(self, number: int) -> int:
        return self.levels[0]

    def tell(self, number: int, rung: int, values: tuple[float, ...] | None, steps: int) -> None:
        level = self._level(steps)
        self._rungs[number] = max(rung, self._rungs.get(number, 0))
        self._open.pop(number, None)
        if values is not None and all(map(math.isfinite, values)):
            self._curves.setdefault(number, {})[level] = values[0]
            self._others[number] = values[1:]
            if level == len(self.levels) - 1:
                self._complete.append(number)
            else:
                self._open[number] = level
        self._judge()

    def started(self, number: int, rung: int, steps: int) -> None:
        self._rungs[number] = max(rung, self._rungs.get(number, 0))
        if self._open.get(number, len(self.levels)) < self._level(steps):
            del self._open[number]
        self._ready.pop(number, None)

    def promotion(self) -> Promotion | None:
        if not self._ready:
            return None
        number = min(self._ready, key=lambda each: (-self._open[each], -self._ready[each], each))
        return Promotion(number, self._rungs[number] + 1, self.levels[self._open[number] + 1])

    def is_last(self, number: int, rung: int, steps: int) -> bool:
        return steps >= self.levels[-1]

    def horizon(self, number: int) -> int:
        return self.levels[-1]

    def forecast(self, trials: int) -> tuple[Level, ...]:
        """The first trials are all trained to the end. Of the others, a multiple of the expected number of new records
        reaches it: n numbers in random order have about log n records, and n pairs have about (log n)^2 / 2 points that
        join the front. The share that continues falls slowly at first, because short training tells little. The smaller
        `probability` is, the more slowly it falls. The constants come from recorded curves; see
        benchmarks/README.md.
        """
        first, last = min(self.full, trials), len(self.levels) - 1
        others = trials - first
        end = max(1.0, min(others, RECORDS * max(0.1, 1 - 4 * self.probability) * self._records(first, trials)))
        steepness = min(2.0, math.sqrt(0.05 / self.probability))
        found = [Level(trials, 0, self.levels[0])]
        for place, (lower, higher) in enumerate(pairwise(self.levels), 1):
            continuing = others * (end / others) ** ((place / last) ** steepness) if others else 0
            found.append(Level(first + round(continuing), lower, higher))
        return tuple(found)

    def _records(self, first: int, trials: int) -> float:
        """The expected number of new records among the trials after the first."""
        low, high = math.log(first), math.log(trials)
        return high - low if self.rank == "quality" else (high**2 - low**2) / 2

    def _judge(self) -> None:
        """Decide for each waiting trial whether it continues, from the results so far."""
        self._ready = {}
        for number, level in list(self._open.items()):
            limit = self._limit(number)
            chance = 1.0 if len(self._complete) < self.full else self.chance(number, level, limit)
            if chance < self.probability:
                self.stopped[number] = self.levels[level], chance, limit
                del self._open[number]
            else:
                self._ready[number] = chance

    def _limit(self, number: int) -> float:
        """The last value that the trial has to reach; infinite if nothing complete is as good in the others."""
        others = self._others[number]
        rivals = [
            self._curves[each][len(self.levels) - 1]
            for each in self._complete
            if self.rank == "quality" or all(a <= b for a, b in zip(self._others[each], others, strict=True))
        ]
        return min(rivals, default=math.inf)

    def chance(self, number: int, level: int, limit: float) -> float:
        """The probability that the trial ends at `limit` or below, given its curve up to `level`."""
        if math.isinf(limit):
            return 1.0
        used = [each for each in range(level + 1) if each in self._curves[number]][-2:]
        known = [each for each in self._complete if all(place in self._curves[each] for place in used)]
        if len(known) < FEWEST:
            return 1.0
        rows = np.array([[self._curves[each][place] for place in used] for each in known])
        last = np.array([self._curves[each][len(self.levels) - 1] for each in known])
        own = np.array([self._curves[number][place] for place in used])
        if self.settled["diverged"] == "fenced":
            *limits, end = (min(fence(column), LARGEST) for column in [*rows.T.tolist(), last.tolist()])
            rows, own, last = np.minimum(rows, limits), np.minimum(own, limits), np.minimum(last, end)
        nearest = np.argsort(np.abs(rows[:, -1] - own[-1]), kind="stable")[:NEAREST]
        return self._below(rows[nearest], last[nearest], own, limit)

    def _level(self, steps: int) -> int:
        return min(bisect_left(self.levels, steps), len(self.levels) - 1)


def chance_below_by_logarithm(rows: np.ndarray, last: np.ndarray, own: np.ndarray, limit: float) -> float:
    """As `chance_below`, for the logarithms of the distances from the lowest of all these values. To each is added the
    distance of the median of the last values, so the better half of them is stretched by a factor of 2 at most.
    """
    low = min(limit, *(float(each.min()) for each in (rows, last, own)))
    shift = max(float(np.median(last)) - low, 1e-12)
    rows, last, own = (np.log(each - low + shift) for each in (rows, last, own))
    return chance_below(rows, last, own, math.log(limit - low + shift))


def chance_below(rows: np.ndarray, last: np.ndarray, own: np.ndarray, limit: float) -> float:
    """The probability of a last value of at most `limit` after the values `own` [L].

    rows: the same values of complete curves, [N, L]; last: their last values, [N]. The errors of the regression for
    curves that it did not see, widened to those of the new curve, are smoothed with a normal density.
    """
    count, width = rows.shape
    middle, spread = rows.mean(0), rows.std(0)
    scale = np.where(spread > 0, spread, 1.0)
    inputs = np.column_stack([np.ones(count), (rows - middle) / scale])
    asked = np.append(1.0, (own - middle) / scale)
    inverse = np.linalg.inv(inputs.T @ inputs + RIDGE * count * np.diag(np.append(0.0, np.ones(width))))
    weights = inverse @ inputs.T @ last
    leverage = np.minimum(((inputs @ inverse) * inputs).sum(1), 0.9)
    unseen = (last - inputs @ weights) / np.sqrt(1 - leverage)
    errors = unseen * math.sqrt(1 + float(asked @ inverse @ asked))
    low, high = np.percentile(errors, [25, 75])
    width_of_errors = max(min(float(errors.std()), float(high - low) / 1.34), 1e-12)
    bandwidth = SMOOTH * width_of_errors * count ** (-1 / 5)
    left = (limit - float(asked @ weights) - errors) / bandwidth
    return float(np.mean([0.5 * math.erfc(-each / math.sqrt(2)) for each in left]))
