"""The trials of one Pareto front by crowding distance, while trials join and leave the front.

A crowding distance depends on the two neighbours in each objective and on the span of the front. So if a trial joins
and the span stays the same, only its neighbours change. The distances equal those of `nas.pareto.crowding` to the bit.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from heapq import heapify, heappop, heappush

import numpy as np

from nas import pareto

Values = tuple[float, ...]
Entry = tuple[float, int]  # (a value or a negative distance, number of the trial)


class Crowd:
    """The order: the largest distance first, then the oldest trial."""

    def __init__(self, values: Mapping[int, Values]) -> None:
        """values: of each trial on the front, at least one."""
        self._values = dict(values)
        self._rebuild()

    def __len__(self) -> int:
        return len(self._values)

    def update(self, joined: Mapping[int, Values], left: Sequence[int]) -> None:
        """Trials leave, then others join. O(log F) comparisons for each."""
        spans, touched = self._spans(), set(joined)
        for number in left:
            touched.update(self._remove(number))
        for number, values in joined.items():
            self._values[number] = values
            touched.update(self._insert(number, values))
        self._is_stale |= not self._values or self._spans() != spans
        if not self._is_stale:
            for number in touched & self._values.keys():
                self._place(number, spans)

    def first(self, open: AbstractSet[int]) -> tuple[int, int]:
        """The first of the trials in `open`, and its place in the order. `open` has a member on the front, and a trial
        that was not in it does not come back.

        Another span changes all distances, O(F log F). But a trial that widened the span is at an end of the front, so
        its distance is infinite. As long as such a trial is open, the other distances are not needed.
        """
        if self._is_stale:
            ends = sorted({number for column in self._columns for _, number in (column[0], column[-1])})
            for place, number in enumerate(ends):
                if number in open:
                    return number, place
            self._rebuild()
        while True:
            entry = self._waiting[0]
            if entry[1] in open and self._negated.get(entry[1]) == entry[0]:
                return entry[1], bisect_left(self._order, entry)
            heappop(self._waiting)

    def _rebuild(self) -> None:
        self._is_stale = False  # whether the distances are those of an earlier span
        numbers = np.array(sorted(self._values), dtype=np.int64)
        rows = np.array([self._values[number] for number in numbers.tolist()])  # [F, M]
        distances = (-pareto.crowding(rows)).tolist() if len(rows) else []
        self._negated = dict(zip(numbers.tolist(), distances))
        self._order: list[Entry] = sorted(zip(distances, numbers.tolist()))
        self._waiting = self._order.copy()  # a heap; entries of promoted trials and old distances leave it late
        self._columns: list[list[Entry]] = []  # for each objective, the sorted values with their trials
        for column in rows.T if len(rows) else ():
            order = np.argsort(column, kind="stable")
            self._columns.append(list(zip(column[order].tolist(), numbers[order].tolist())))

    def _spans(self) -> list[float]:
        return [column[-1][0] - column[0][0] if column else 0.0 for column in self._columns]

    def _remove(self, number: int) -> list[int]:
        """Take a trial out; its neighbours."""
        touched: list[int] = []
        for column, value in zip(self._columns, self._values.pop(number)):
            place = bisect_left(column, (value, number))
            del column[place]
            touched += [other for _, other in column[max(0, place - 1) : place + 1]]
        self._forget(number)
        return touched

    def _insert(self, number: int, values: Values) -> list[int]:
        """Put a trial in; its neighbours."""
        touched: list[int] = []
        for column, value in zip(self._columns, values):
            place = bisect_left(column, (value, number))
            touched += [other for _, other in column[max(0, place - 1) : place + 1]]
            column.insert(place, (value, number))
        return touched

    def _place(self, number: int, spans: list[float]) -> None:
        negated = -self._distance(number, spans)
        if negated == self._negated.get(number):
            return
        self._forget(number)
        self._negated[number] = negated
        insort(self._order, (negated, number))
        heappush(self._waiting, (negated, number))
        if len(self._waiting) > 8 * len(self._order) + 64:
            self._waiting = self._order.copy()
            heapify(self._waiting)

    def _forget(self, number: int) -> None:
        if number in self._negated:
            del self._order[bisect_left(self._order, (self._negated.pop(number), number))]

    def _distance(self, number: int, spans: list[float]) -> float:
        total = 0.0
        for column, span, value in zip(self._columns, spans, self._values[number]):
            place = bisect_left(column, (value, number))
            if place == 0 or place == len(column) - 1:
                return math.inf
            if span > 0:
                total += (column[place + 1][0] - column[place - 1][0]) / span
        return total
