"""The trials of one Pareto front by crowding distance, while trials join and leave the front.

A crowding distance depends on the two neighbours in each objective and on the span of the front. So if a trial joins
and the span stays the same, only its neighbours change. The distances equal those of `nas.pareto.crowding` to the bit.

If copies come last, the oldest of trials with equal values stands for them; the others follow after all points of the
front, the oldest first. Otherwise the oldest and the newest of equal trials at an end both have an infinite distance.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from heapq import heapify, heappop, heappush, heapreplace

import numpy as np

from nas import pareto

Values = tuple[float, ...]
Entry = tuple[float, int]  # (a value or a negative distance, number of the trial)
COPY = 1.0  # in place of a negative distance: after all of them


class Crowd:
    """The order: the largest distance first, then the oldest trial."""

    def __init__(self, values: Mapping[int, Values], *, copies_last: bool = False) -> None:
        """values: of each trial on the front, at least one."""
        self._values = dict(values)
        self._equal: dict[Values, list[int]] | None = None  # sorted trials of each point, if copies come last
        if copies_last:
            self._equal = {}
            for number, point in sorted(values.items()):
                self._equal.setdefault(point, []).append(number)
        self._rebuild()

    def __len__(self) -> int:
        return len(self._values)

    def update(self, joined: Mapping[int, Values], left: Sequence[int]) -> None:
        """Trials leave, then others join. O(log F) comparisons for each."""
        spans, touched = self._spans(), set(joined)
        for number in sorted(left, reverse=True):  # copies before the trial that stands for their point
            touched.update(self._leave(number, self._values.pop(number)))
        for number, values in joined.items():
            self._values[number] = values
            touched.update(self._join(number, values))
        self._is_stale |= not self._values or self._spans() != spans
        if not self._is_stale:
            for number in touched & self._lower[0].keys():
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
            negated, number = entry = self._waiting[0]
            now = self._negated.get(number)
            if now is not None and now > negated:  # others have joined it since
                heapreplace(self._waiting, (now, number))
                continue
            if now == negated and number not in self._passed:
                if number in open:
                    return number, bisect_left(self._order, entry)
                self._passed.add(number)
                insort(self._order, entry)
            heappop(self._waiting)

    def _rebuild(self) -> None:
        self._is_stale = False  # whether the distances are those of an earlier span
        copies = sorted(number for equal in (self._equal or {}).values() for number in equal[1:])
        numbers = np.array(sorted(self._values.keys() - set(copies)), dtype=np.int64)
        rows = np.array([self._values[number] for number in numbers.tolist()])  # [F, M]
        negated = -pareto.crowding(rows) if len(rows) else np.zeros(0)
        self._negated = dict(zip(numbers.tolist(), negated.tolist())) | dict.fromkeys(copies, COPY)
        best = np.argsort(negated, kind="stable")
        # A heap: old distances and trials that are not open leave it late.
        self._waiting: list[Entry] = list(zip(negated[best].tolist(), numbers[best].tolist()))
        self._waiting += [(COPY, number) for number in copies]
        self._order: list[Entry] = []  # of the trials that were found not to be open, sorted
        self._passed: set[int] = set()  # these trials
        self._columns: list[list[Entry]] = []  # for each objective, the sorted values with their trials
        # For each objective, the values of the two neighbours of each trial; infinite at the ends.
        self._lower: list[dict[int, float]] = []
        self._higher: list[dict[int, float]] = []
        for column in rows.T if len(rows) else ():
            order = np.argsort(column, kind="stable")
            ordered, values = numbers[order].tolist(), column[order].tolist()
            self._columns.append(list(zip(values, ordered)))
            self._lower.append(dict(zip(ordered, [-math.inf, *values])))
            self._higher.append(dict(zip(ordered, [*values[1:], math.inf])))

    def _spans(self) -> list[float]:
        return [column[-1][0] - column[0][0] if column else 0.0 for column in self._columns]

    def _leave(self, number: int, values: Values) -> list[int]:
        """A trial leaves the front; the trials whose distances change."""
        if self._equal is None:
            return self._remove(number, values)
        equal = self._equal[values]
        place = equal.index(number)
        del equal[place]
        if place:
            self._forget(number)
            return []
        touched = self._remove(number, values)
        if not equal:
            del self._equal[values]
            return touched
        return [*touched, equal[0], *self._insert(equal[0], values)]

    def _join(self, number: int, values: Values) -> list[int]:
        """A trial joins the front; the trials whose distances change, perhaps without this one."""
        if self._equal is None:
            return self._insert(number, values)
        equal = self._equal.setdefault(values, [])
        insort(equal, number)
        touched: list[int] = []
        if number == equal[0]:
            touched = self._insert(number, values)
        if len(equal) > 1:
            copy = equal[1] if number == equal[0] else number
            touched += self._remove(copy, values) if copy != number else []
            self._negated[copy] = COPY
            heappush(self._waiting, (COPY, copy))
        return touched

    def _remove(self, number: int, values: Values) -> list[int]:
        """Take a point out of the columns; its neighbours."""
        touched: list[int] = []
        sides = zip(self._columns, self._lower, self._higher, values)
        for column, lower, higher, value in sides:
            place = bisect_left(column, (value, number))
            del column[place]
            before, after = lower.pop(number), higher.pop(number)
            if place:
                touched.append(column[place - 1][1])
                higher[touched[-1]] = after
            if place < len(column):
                touched.append(column[place][1])
                lower[touched[-1]] = before
        self._forget(number)
        return touched

    def _insert(self, number: int, values: Values) -> list[int]:
        """Put a point into the columns; its neighbours."""
        touched: list[int] = []
        for column, lower, higher, value in zip(self._columns, self._lower, self._higher, values):
            place = bisect_left(column, (value, number))
            lower[number], higher[number] = -math.inf, math.inf
            if place:
                lower[number], before = column[place - 1]
                higher[before] = value
                touched.append(before)
            if place < len(column):
                higher[number], after = column[place]
                lower[after] = value
                touched.append(after)
            column.insert(place, (value, number))
        return touched

    def _place(self, number: int, spans: list[float]) -> None:
        negated = -self._distance(number, spans)
        earlier = self._negated.get(number)
        if negated == earlier:
            return
        self._negated[number] = negated
        if number in self._passed:
            del self._order[bisect_left(self._order, (earlier, number))]
            insort(self._order, (negated, number))
            return
        if earlier is not None and negated > earlier:
            return  # `first` corrects its entry when that is the least, which most entries never are
        heappush(self._waiting, (negated, number))
        if len(self._waiting) > 8 * len(self._negated) + 64:
            self._waiting = [entry for entry in self._entries() if entry[1] not in self._passed]
            heapify(self._waiting)

    def _entries(self) -> Iterator[Entry]:
        return zip(self._negated.values(), self._negated)

    def _forget(self, number: int) -> None:
        negated = self._negated.pop(number, None)
        if number in self._passed:
            self._passed.remove(number)
            del self._order[bisect_left(self._order, (negated, number))]

    def _distance(self, number: int, spans: list[float]) -> float:
        """Infinite at the ends. If all values of an objective are equal, the others get 0 for it."""
        total = 0.0
        for lower, higher, span in zip(self._lower, self._higher, spans):
            gap = higher[number] - lower[number]
            total += gap / span if span > 0 else gap
        return total
