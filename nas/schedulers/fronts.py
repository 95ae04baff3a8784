"""Pareto fronts that change point by point, for `nas.schedulers.order`.

Each front is a set of points that do not dominate each other. Two operations are enough to keep all fronts of a set
in order while points arrive: does a member dominate this point, and which members do these points dominate?
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from functools import reduce
from operator import or_, xor
from typing import Protocol

Values = tuple[float, ...]
FEW = 16  # members in a block of a small front: smaller blocks make `add` slower, larger ones `up_to`


class Front(Protocol):
    """Constructed from its first points, which are not empty."""

    def dominates(self, point: Values) -> bool:
        """Whether a member dominates `point`, which is not a member."""

    def join(self, points: list[Values]) -> list[Values] | None:
        """Add `points` -> the members that they dominate, which leave. No member dominates one of `points`, and they
        come from the front before this one.

        If they dominate all members, nothing changes and the answer is None.
        """

    def points(self) -> list[Values]:
        """All members."""


class Staircase:
    """A front of two objectives: the first value ascends, the second descends. O(log F) for each call."""

    def __init__(self, points: list[Values]) -> None:
        self._firsts = [first for first, _ in points]
        self._negated = [-second for _, second in points]  # ascending, for bisect

    def dominates(self, point: Values) -> bool:
        place = bisect_right(self._firsts, point[0]) - 1
        return place >= 0 and -self._negated[place] <= point[1]

    def join(self, points: list[Values]) -> list[Values] | None:
        """The members that leave are one slice. A member that lies between two of `points` and is dominated by neither
        was dominated by no point of the front before, so it would not be here.
        """
        start = bisect_left(self._firsts, points[0][0])
        end = max(start, bisect_right(self._negated, -points[-1][1]))
        if end - start == len(self._firsts):
            return None
        leaving: list[Values] = [(x, -y) for x, y in zip(self._firsts[start:end], self._negated[start:end])]
        self._firsts[start:end] = [first for first, _ in points]
        self._negated[start:end] = [-second for _, second in points]
        return leaving

    def points(self) -> list[Values]:
        return [(x, -y) for x, y in zip(self._firsts, self._negated)]


class Cloud:
    """A front of any number of objectives. A set of members is an integer with one bit for each member.

    The members that are nowhere above a point are the intersection of one set for each objective: those up to the
    point's value. Members that left stay in these sets until they are built again. They do not change `dominates`:
    whatever such a member dominates, the member that displaced it dominates too.
    """

    def __init__(self, points: list[Values]) -> None:
        self._build(points)

    def dominates(self, point: Values) -> bool:
        found = self._all
        for column, value in zip(self._columns, point):
            found &= column.up_to(value)
            if not found:
                return False
        return True

    def join(self, points: list[Values]) -> list[Values] | None:
        gone = 0
        for point in points:
            stays = 0
            for column, value in zip(self._columns, point):
                stays |= column.below(value)
            gone |= self._present & ~stays
        if gone == self._present:
            return None
        leaving = self._of(gone)
        self._present ^= gone
        for point in points:
            bit = 1 << len(self._members)
            self._members.append(point)
            self._all |= bit
            self._present |= bit
            for column, value in zip(self._columns, point):
                column.add(value, bit)
        if len(self._members) > 2 * self._built + FEW:
            self._build(self.points())
        return leaving

    def points(self) -> list[Values]:
        return self._of(self._present)

    def _build(self, points: list[Values]) -> None:
        self._members = points
        self._built = len(points)
        self._all = self._present = (1 << len(points)) - 1
        self._columns = [Column(values) for values in zip(*points)]

    def _of(self, members: int) -> list[Values]:
        points = []
        while members:
            place = members.bit_length() - 1
            points.append(self._members[place])
            members ^= 1 << place
        return points


class Column:
    """The members of a `Cloud` sorted by one objective, in blocks. Each block has the set of all members before it."""

    def __init__(self, values: tuple[float, ...]) -> None:
        order = sorted(range(len(values)), key=values.__getitem__)
        self._length = FEW + len(values) // 128
        starts = range(0, len(values), self._length)
        self._values = [[values[place] for place in order[start : start + self._length]] for start in starts]
        self._bits = [[1 << place for place in order[start : start + self._length]] for start in starts]
        self._lowest = [block[0] for block in self._values]
        self._before = [0]
        for bits in self._bits[:-1]:
            self._before.append(reduce(or_, bits, self._before[-1]))
        self._asked: tuple[int, int] | None = None

    def up_to(self, value: float) -> int:
        """The set of the members of this value or a lower one."""
        index = bisect_right(self._lowest, value) - 1
        if index < 0:
            return 0
        return self._set_before(index, bisect_right(self._values[index], value))

    def below(self, value: float) -> int:
        """The set of the members of a lower value."""
        index = bisect_left(self._lowest, value) - 1
        if index < 0:
            return 0
        return self._set_before(index, bisect_left(self._values[index], value))

    def _set_before(self, index: int, place: int) -> int:
        """The set of the members before this place of a block. The last one is kept: `join` asks after `dominates`."""
        if self._asked != (index, place):
            self._asked = index, place
            bits, after = self._bits[index], self._before[index + 1 : index + 2]
            if after and 2 * place > len(bits):
                self._answer = reduce(xor, bits[place:], after[0])
            else:
                self._answer = reduce(or_, bits[:place], self._before[index])
        return self._answer

    def add(self, value: float, bit: int) -> None:
        """A new member, which has this bit."""
        self._asked = None
        index = max(0, bisect_right(self._lowest, value) - 1)
        values, bits = self._values[index], self._bits[index]
        place = bisect_right(values, value)
        values.insert(place, value)
        bits.insert(place, bit)
        self._lowest[index] = values[0]
        self._before[index + 1 :] = [members | bit for members in self._before[index + 1 :]]
        if len(values) > 2 * self._length:
            self._split(index)

    def _split(self, index: int) -> None:
        values, bits, middle = self._values[index], self._bits[index], self._length
        self._values[index : index + 1] = [values[:middle], values[middle:]]
        self._bits[index : index + 1] = [bits[:middle], bits[middle:]]
        self._lowest.insert(index + 1, values[middle])
        self._before.insert(index + 1, reduce(or_, bits[:middle], self._before[index]))
