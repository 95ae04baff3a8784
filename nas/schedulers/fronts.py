"""Pareto fronts that change point by point, for `nas.schedulers.order`.

Each front is a set of points that do not dominate each other. Two operations are enough to keep all fronts of a set
in order while points arrive: does a member dominate this point, and which members do these points dominate?
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from functools import reduce
from typing import Protocol

import numpy as np

from nas.pareto import Indices, Mask

Values = tuple[float, ...]


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
    """A front of any number of objectives: one array for each, in no order. A call compares all members.

    That is O(F), but 16,000 members take about ten microseconds. A structure that compares fewer of them has more work
    in Python.
    """

    def __init__(self, points: list[Values]) -> None:
        self._count = len(points)
        self._values = np.array(points).T.copy()  # [M, at least F]

    def dominates(self, point: Values) -> bool:
        return bool(np.count_nonzero(self._all(np.less_equal, point)))

    def join(self, points: list[Values]) -> list[Values] | None:
        is_gone = reduce(np.logical_or, [self._all(np.greater_equal, point) for point in points])
        gone = is_gone.nonzero()[0]
        if len(gone) == self._count:
            return None
        leaving = self._of(gone) if len(gone) else []
        if leaving:
            self._remove(gone, is_gone)
        self._append(points)
        return leaving

    def points(self) -> list[Values]:
        return self._of(slice(self._count))

    def _all(self, compare: np.ufunc, point: Values) -> Mask:
        """For which members the comparison with `point` holds in all objectives."""
        count = self._count
        mask: Mask = compare(self._values[0, :count], point[0])
        for column, value in zip(self._values[1:], point[1:]):
            mask &= compare(column[:count], value)
        return mask

    def _remove(self, gone: Indices, is_gone: Mask) -> None:
        """The last members that stay take the places of those that leave."""
        self._count -= len(gone)
        moved = self._count + np.flatnonzero(~is_gone[self._count :])
        self._values[:, gone[: len(moved)]] = self._values[:, moved]

    def _append(self, points: list[Values]) -> None:
        count = self._count + len(points)
        if count > self._values.shape[1]:
            self._values = np.pad(self._values, ((0, 0), (0, count)))
        for place, point in enumerate(points, self._count):
            self._values[:, place] = point
        self._count = count

    def _of(self, places: Indices | slice) -> list[Values]:
        return list(map(tuple, self._values[:, places].T.tolist()))
