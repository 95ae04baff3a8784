"""Asynchronous successive halving with several objectives: the best 1/factor of a rung go on to the next.

Li et al. 2020, "A System for Massively Parallel Hyperparameter Tuning" (ASHA), https://arxiv.org/abs/1810.05934,
algorithm 2: no rung waits to be full; whenever a worker is free, the highest rung with a trial that is now among its
best sends it on. Several objectives are ranked by Pareto front, then by crowding; ties go to the older trial.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Annotated

from pydantic import Field

from nas import pareto
from nas.schedulers.registry import scheduler


class Rung:
    """The results of one rung, and which of its trials have gone on."""

    def __init__(self) -> None:
        self.results: dict[int, tuple[float, ...] | None] = {}
        self.promoted: set[int] = set()
        self._best: list[int] | None = None  # who may go on and has not, best first; None when to be made anew

    def tell(self, number: int, values: tuple[float, ...] | None) -> None:
        finite = values is not None and all(map(math.isfinite, values))
        self.results[number] = values if finite else None
        self._best = None

    def promote(self, number: int) -> None:
        self.promoted.add(number)
        if self._best is not None and number in self._best:
            self._best.remove(number)

    def candidate(self, factor: float) -> int | None:
        """The best trial among the best 1/factor of the finished ones that has not gone on."""
        if self._best is None:
            self._best = [number for number in self._top(factor) if number not in self.promoted]
        return self._best[0] if self._best else None

    def _top(self, factor: float) -> list[int]:
        count = int(len(self.results) / factor)
        if not count:
            return []
        finished = sorted((number, values) for number, values in self.results.items() if values is not None)
        best = pareto.order([values for _, values in finished])[:count]
        return [finished[index][0] for index in best]


@scheduler("halving")
class Halving:
    """`rungs`: training steps, in all, at each rung, ascending; `factor`: one trial in so many goes on.

    A failure counts as a finished trial, so a rung of failures still lets its survivors on, and never goes on itself.
    """

    def __init__(
        self,
        *,
        rungs: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(min_length=1)],
        factor: Annotated[float, Field(gt=1)] = 3,
    ) -> None:
        for lower, higher in pairwise(rungs):
            if higher <= lower:
                raise ValueError(f"rungs must ascend, but {lower} is followed by {higher}.")
        self.rungs = rungs
        self.factor = factor
        self._rungs = [Rung() for _ in rungs]

    def tell(self, number: int, rung: int, values: tuple[float, ...] | None) -> None:
        self._rungs[rung].tell(number, values)

    def started(self, number: int, rung: int) -> None:
        if rung > 0:
            self._rungs[rung - 1].promote(number)

    def promotion(self) -> tuple[int, int] | None:
        for rung in range(len(self.rungs) - 2, -1, -1):
            number = self._rungs[rung].candidate(self.factor)
            if number is not None:
                return number, rung + 1
        return None
