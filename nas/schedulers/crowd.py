"""The trials of one Pareto front by crowding distance, while trials join and leave the front.

A crowding distance depends on the two neighbours in each objective and on the span of the front. So if a trial joins
and the span stays the same, only its neighbours change. The distances equal those of `nas.pareto.crowding` to the bit.

If copies come last, the oldest of trials with equal values stands for them; the others follow after all points of the
front, the oldest first. Otherwise the oldest and the newest of equal trials at an end both have an infinite distance.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

import numpy as np

from nas.schedulers.distances import COPY, Distances

Values = tuple[float, ...]
Entry = tuple[float, int]  # (value, number of the trial)
FIRST, LAST = (-math.inf, -1), (math.inf, -1)  # the ends of a column: no trials


class Crowd:
    """Finds the neighbours of each trial in each objective; `Distances` has the order that follows."""

    def __init__(self, values: Mapping[int, Values], open: AbstractSet[int], *, copies_last: bool = False) -> None:
        """values: of each trial on the front, at least one. open: the trials that may be first. The caller changes this
        set: a trial that joins the front may join it too, and one that leaves it does not come back."""
        self._values = dict(values)
        self._open = open
        self._equal: dict[Values, list[int]] | None = None  # sorted trials of each point, if copies come last
        if copies_last:
            self._equal = {}
            for number, point in sorted(values.items()):
                self._equal.setdefault(point, []).append(number)
        self._build()

    def __len__(self) -> int:
        return len(self._values)

    def update(self, joined: Mapping[int, Values], left: Sequence[int]) -> None:
        """Trials leave, then others join. O(log F) comparisons for each."""
        for number in sorted(left, reverse=True):  # copies before the trial that stands for their point
            self._leave(number, self._values.pop(number))
        for number, values in joined.items():
            self._values[number] = values
            self._join(number, values)

    def first(self) -> tuple[int, int]:
        """The first of the open trials on the front, where there must be one, and its place in the order.

        Another span changes all distances. But a trial that widened the span is at an end of the front, so its distance
        is infinite. As long as such a trial is open, no distance is computed.
        """
        spans = [column[-2][0] - column[1][0] for column in self._columns]
        if spans != self._distances.spans:
            ends = {number for column in self._columns for _, number in (column[1], column[-2])}
            for place, number in enumerate(sorted(ends)):
                if number in self._open:
                    return number, place
        self._distances.measure(spans)
        return self._distances.first()

    def _build(self) -> None:
        copies = sorted(number for equal in (self._equal or {}).values() for number in equal[1:])
        numbers = np.array(sorted(self._values.keys() - set(copies)), dtype=np.int64)
        rows = np.array([self._values[number] for number in numbers.tolist()]).T  # [M, F]
        gaps = np.full(rows.shape, math.inf)
        # For each objective, the sorted values with their trials, between two ends.
        self._columns: list[list[Entry]] = []
        for column, gap in zip(rows, gaps):
            order = np.argsort(column, kind="stable")
            values = column[order]
            gap[order[1:-1]] = values[2:] - values[:-2]
            self._columns.append([FIRST, *zip(values.tolist(), numbers[order].tolist()), LAST])
        self._distances = Distances(numbers, gaps, self._open)
        for number in copies:
            self._distances.add(number, COPY)

    def _leave(self, number: int, values: Values) -> None:
        equal = [number] if self._equal is None else self._equal[values]
        place = equal.index(number)
        del equal[place]
        if place:
            self._distances.remove(number)
            return
        self._remove(number, values)
        if equal:
            self._distances.remove(equal[0])
            self._insert(equal[0], values)
        elif self._equal is not None:
            del self._equal[values]

    def _join(self, number: int, values: Values) -> None:
        equal = [] if self._equal is None else self._equal.setdefault(values, [])
        insort(equal, number)
        if number != equal[0]:
            self._distances.add(number, COPY)
            return
        if len(equal) > 1:
            self._remove(equal[1], values)
            self._distances.add(equal[1], COPY)
        self._insert(number, values)

    def _remove(self, number: int, values: Values) -> None:
        """Take a point out of the columns."""
        for objective, (column, value) in enumerate(zip(self._columns, values)):
            place = bisect_left(column, (value, number))
            del column[place]
            self._measure(objective, place - 1, place + 1)
        self._distances.remove(number)

    def _insert(self, number: int, values: Values) -> None:
        """Put a point into the columns."""
        self._distances.add(number)
        for objective, (column, value) in enumerate(zip(self._columns, values)):
            place = bisect_left(column, (value, number))
            column.insert(place, (value, number))
            self._measure(objective, place - 1, place + 2)

    def _measure(self, objective: int, start: int, end: int) -> None:
        """The trials at these places of a column have other neighbours now."""
        near = self._columns[objective][max(start, 1) - 1 : end + 1]
        sides = zip(near, near[1:], near[2:])
        self._distances.change(objective, [(number, high - low) for (low, _), (_, number), (high, _) in sides])
