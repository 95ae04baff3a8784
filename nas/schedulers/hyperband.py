"""Hyperband: brackets of successive halving that start at different levels, so that a poor lowest level does less harm.

Li et al. 2018, "Hyperband: A Novel Bandit-Based Approach to Hyperparameter Optimization",
https://jmlr.org/papers/v18/16-558.html, algorithm 1, with asynchronous brackets. Bracket s of S starts at its own
level, with ceil(S / (s + 1)) * factor^s trials, so that all brackets cost about the same. A trial belongs to a bracket
by its number.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from nas.options import Rungs, Steps
from nas.schedulers.contract import Level, Promotion
from nas.schedulers.halving import SKIPPED, Factor, Halving, PoorRungs
from nas.schedulers.rank import QUALITY, CostLimits, Rank
from nas.schedulers.registry import scheduler

MOST_TRIALS = 4_000  # until the brackets repeat


@scheduler("hyperband")
class Hyperband:
    """The options are those of `halving`. brackets: how many there are; the first starts at the lowest level, the last
    one trains all of its trials to a higher level at once. None is one for each level."""

    def __init__(
        self,
        *,
        rungs: Rungs,
        factor: Factor = 3,
        brackets: Steps | None = None,
        rank: Rank = QUALITY,
        cost_limits: CostLimits | None = None,
        poor_rungs: PoorRungs = SKIPPED,
        objectives: Mapping[str, str] | None = None,
    ) -> None:
        count = len(rungs) if brackets is None else brackets
        if count > len(rungs):
            raise ValueError(f"brackets must be at most the number of rungs, {len(rungs)}, but got {count}.")
        given: dict[str, Any] = {"rank": rank, "cost_limits": cost_limits, "objectives": objectives}
        given |= {"factor": factor, "poor_rungs": poor_rungs}
        self.brackets = [Halving(rungs=rungs[first:], **given) for first in range(count)]
        self._cycle = _cycle(_sizes(len(rungs), count, factor))

    def start(self, number: int) -> int:
        return self._of(number).start(number)

    def tell(self, number: int, rung: int, values: tuple[float, ...] | None, steps: int) -> None:
        self._of(number).tell(number, rung, values, steps)

    def started(self, number: int, rung: int, steps: int) -> None:
        self._of(number).started(number, rung, steps)

    def promotion(self) -> Promotion | None:
        return next(filter(None, (bracket.promotion() for bracket in self.brackets)), None)

    def is_last(self, number: int, rung: int, steps: int) -> bool:
        return self._of(number).is_last(number, rung, steps)

    def horizon(self, number: int) -> int:
        return self._of(number).horizon(number)

    def forecast(self, trials: int) -> tuple[Level, ...]:
        """The levels of all brackets, each with its share of the trials."""
        whole, left = divmod(trials, len(self._cycle))
        places = self._cycle * whole + self._cycle[:left]
        shares = [places.count(index) for index in range(len(self.brackets))]
        levels = [level for bracket, share in zip(self.brackets, shares) if share for level in bracket.forecast(share)]
        return tuple(sorted(levels, key=lambda level: (level.steps, level.start)))

    def _of(self, number: int) -> Halving:
        return self.brackets[self._cycle[number % len(self._cycle)]]


def _sizes(levels: int, brackets: int, factor: float) -> list[int]:
    """The trials of each bracket; the first starts at the lowest level. If together they are more than `MOST_TRIALS`,
    they shrink to that, in proportion, and each keeps one trial at least.

    Raises ValueError if the factor is too large to compute them.
    """
    try:
        sizes = [math.ceil(levels / (down + 1) * factor**down) for down in range(levels - 1, levels - 1 - brackets, -1)]
    except OverflowError:
        raise ValueError(f"factor is too large for {levels} rungs: {factor:g}.") from None
    total = sum(sizes)
    return sizes if total <= MOST_TRIALS else [max(1, size * MOST_TRIALS // total) for size in sizes]


def _cycle(sizes: list[int]) -> list[int]:
    """The bracket of each trial in turn: each has its share of every part of the cycle."""
    total = sum(sizes)
    taken = [0] * len(sizes)
    found: list[int] = []
    for place in range(1, total + 1):
        behind = [size * place / total - count for size, count in zip(sizes, taken)]
        found.append(max(range(len(sizes)), key=behind.__getitem__))
        taken[found[-1]] += 1
    return found
