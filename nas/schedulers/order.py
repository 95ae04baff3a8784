"""The finished trials of one level of successive halving, best first.

A level asks for one thing only: the first trial in the order that is not promoted, if it is among the first `count`.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from heapq import heappop, heappush
from typing import Protocol

import numpy as np

from nas import pareto

Values = tuple[float, ...]
STALE = 100  # the fronts are sorted again when one result in `STALE` is new


class Order(Protocol):
    """The order of one level."""

    def add(self, number: int, values: Values) -> None:
        """Trial `number` finished with `values`, all minimised and finite. Each trial is added once."""

    def promote(self, number: int) -> None:
        """Trial `number` is promoted, whether it was added before or not."""

    def candidate(self, count: int) -> int | None:
        """The first trial in the order that is not promoted, if it is among the first `count`."""


class Line:
    """The order with one objective: by value, then the older trial first."""

    def __init__(self) -> None:
        self._sorted: list[tuple[float, int]] = []  # (value, number)
        self._open: list[tuple[float, int]] = []  # a heap; promoted trials leave it late
        self._promoted: set[int] = set()

    def add(self, number: int, values: Values) -> None:
        insort(self._sorted, (values[0], number))
        heappush(self._open, (values[0], number))

    def promote(self, number: int) -> None:
        self._promoted.add(number)

    def candidate(self, count: int) -> int | None:
        while self._open and self._open[0][1] in self._promoted:
            heappop(self._open)
        if not self._open or bisect_left(self._sorted, self._open[0]) >= count:
            return None
        return self._open[0][1]


class Fronts:
    """The order with several objectives: by Pareto front, then the less crowded first, then the older trial first.

    Of trials that are equal in everything, the oldest comes first and the others at the end of their front. Sorting all
    results for each new one would take .4 s at 16,000 results with three objectives, so with more than `STALE` results
    the newest hundredth may not be in the order yet. Which ones follows from the number of results alone.
    """

    def __init__(self) -> None:
        self._trials: dict[int, Values] = {}
        self._promoted: set[int] = set()
        self._due = 0  # the number of results, of the first that came, that should be in the order
        self._order: list[int] = []

    def add(self, number: int, values: Values) -> None:
        self._trials[number] = values
        if (len(self._trials) - self._due) * STALE >= self._due:
            self._due = len(self._trials)

    def promote(self, number: int) -> None:
        self._promoted.add(number)

    def candidate(self, count: int) -> int | None:
        if len(self._order) < self._due:
            self._order = self._sort()
        return next((number for number in self._order[:count] if number not in self._promoted), None)

    def _sort(self) -> list[int]:
        numbers = np.array(sorted(list(self._trials)[: self._due]))
        rows = np.array([self._trials[number] for number in numbers.tolist()])
        first = np.sort(np.unique(rows, axis=0, return_index=True)[1])  # the oldest trial of each point
        fronts, is_copy = pareto.ranks(rows), np.ones(len(rows), dtype=bool)
        is_copy[first] = False
        distance = np.full(len(rows), -np.inf)
        distance[first] = pareto.crowding(rows[first], fronts[first])
        return numbers[np.lexsort((numbers, -distance, is_copy, fronts))].tolist()
