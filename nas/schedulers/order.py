"""The finished trials of one level of successive halving, kept in order while results arrive one by one.

With several objectives, the order is that of `nas.pareto.order` over the trials sorted by number: by Pareto front, then
by crowding distance, then the older trial first; copies of a point may come last on its front, see
`nas.schedulers.crowd`. A level asks for one thing only: the first trial in that order that is not promoted, if it is
among the first `count`. So only the fronts up to that trial are kept. All other points wait in a pool; the next fronts
are taken out of it when they are needed.

A new point joins the first front that does not dominate it and displaces the members that it dominates. These move to
the next front and displace others there, and so on (Li et al. 2017, "Efficient Nondomination Level Update Method for
Steady-State Evolutionary Multiobjective Optimization", https://doi.org/10.1109/TCYB.2016.2621008).
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from heapq import heapify, heappop, heappush
from typing import Protocol

import numpy as np

from nas import pareto
from nas.schedulers.crowd import Crowd
from nas.schedulers.fronts import Cloud, Front, Staircase, Values

FEW = 1000  # new trials: to sort them in one by one is faster than to sort all
SLACK = 0.25  # the fronts hold this share of `count` more than needed, so that the pool is seldom sorted


class Order(Protocol):
    """The order of one level."""

    def add(self, number: int, values: Values) -> None:
        """Trial `number` finished with `values`, all minimised and finite. Each trial is added once."""

    def promote(self, number: int) -> None:
        """Trial `number` is promoted, whether it was added before or not."""

    def candidate(self, count: int) -> int | None:
        """The first trial in the order that is not promoted, if it is among the first `count`."""


class Line:
    """The order with one objective: by value, then the older trial first. O(log N) comparisons for each call.

    ends_first: of equal values the oldest and the newest trial come first, as their crowding distance is infinite. Then
    each new trial with the best value so far is second, so all of them continue.
    """

    def __init__(self, *, ends_first: bool = False) -> None:
        self._ends_first = ends_first
        self._new: list[tuple[float, int]] = []  # (value, number) of trials that are in neither of the next two
        self._sorted: list[tuple[float, int]] = []
        self._open: list[tuple[float, int]] = []  # a heap; promoted trials leave it late
        self._promoted: set[int] = set()

    def add(self, number: int, values: Values) -> None:
        self._new.append((values[0], number))

    def promote(self, number: int) -> None:
        self._promoted.add(number)

    def candidate(self, count: int) -> int | None:
        self._enter()
        while self._open and self._open[0][1] in self._promoted:
            heappop(self._open)
        if not self._open:
            return None
        number, place = self._first(*self._open[0])
        return number if place < count else None

    def _enter(self) -> None:
        """Sort the new trials in. Those of a study that is loaded are sorted at once."""
        if len(self._new) > FEW:
            self._sorted += self._new
            self._sorted.sort()
            self._open += self._new
            heapify(self._open)
        else:
            for each in self._new:
                insort(self._sorted, each)
                heappush(self._open, each)
        self._new = []

    def _first(self, value: float, oldest: int) -> tuple[int, int]:
        """The first unpromoted trial of a value and its place; `oldest` is the oldest unpromoted one."""
        if not self._ends_first:
            return oldest, bisect_left(self._sorted, (value, oldest))
        start = bisect_left(self._sorted, (value, -1))
        if oldest == self._sorted[start][1]:
            return oldest, start
        newest = self._sorted[bisect_left(self._sorted, (value, math.inf)) - 1][1]
        if newest not in self._promoted:
            return newest, start + 1
        return oldest, bisect_left(self._sorted, (value, oldest)) + 1


class Tier:
    """One front with its trials. Open trials are those that are not promoted. copies_last: see `Crowd`."""

    def __init__(self, points: list[Values], *, copies_last: bool) -> None:
        self.front: Front = Staircase(points) if len(points[0]) == 2 else Cloud(points)
        self.open: set[int] = set()
        self._copies_last = copies_last
        self._crowd: Crowd | None = None  # as it was before `_joined` and `_left`
        self._joined: dict[int, Values] = {}
        self._left: list[int] = []

    def change(self, joined: dict[int, Values], left: list[int]) -> None:
        """Trials join and leave."""
        if self._crowd is None:
            return
        for number in left:
            if self._joined.pop(number, None) is None:
                self._left.append(number)
        self._joined.update(joined)
        if len(self._joined) + len(self._left) > 3 + len(self._crowd) // 40:  # to start again is cheaper
            self._crowd = None

    def first(self, trials: dict[Values, list[int]]) -> tuple[int, int]:
        """The first open trial in the order of the front, and its place there. trials: of each point."""
        if self._crowd is None:
            values = {number: point for point in self.front.points() for number in trials[point]}
            self._crowd = Crowd(values, self.open, copies_last=self._copies_last)
        elif self._joined or self._left:
            self._crowd.update(self._joined, self._left)
        self._joined, self._left = {}, []
        return self._crowd.first()


class Fronts:
    """The order with several objectives. Values beyond `nas.pareto.LARGEST` count as that, so that spans are finite.

    copies_last: of trials that are equal in everything, the oldest comes first and the others at the end of the front.
    Otherwise each new trial that equals an end of the front is among the first, so all of them continue.
    """

    def __init__(self, *, copies_last: bool = False) -> None:
        self._copies_last = copies_last
        self._points: dict[int, Values] = {}
        self._trials: dict[Values, list[int]] = {}  # point -> its trials, sorted
        self._promoted: set[int] = set()
        self._tiers: list[Tier] = []
        self._sizes: list[int] = []  # how many trials each tier has
        self._is_open = bytearray()  # whether each tier has an open trial: searched faster than a list
        self._lowest = 0  # the tier of the last candidate
        self._tier: dict[Values, Tier] = {}  # of the points on a tier
        self._pool: set[Values] = set()  # the other points: each is dominated by the last tier

    def add(self, number: int, values: Values) -> None:
        point = tuple([min(max(float(value), -pareto.LARGEST), pareto.LARGEST) for value in values])
        self._points[number] = point
        trials = self._trials.setdefault(point, [])
        insort(trials, number)
        if len(trials) == 1:
            self._join(point)
        elif tier := self._tier.get(point):
            self._change(self._tiers.index(tier), [number], [])

    def promote(self, number: int) -> None:
        self._promoted.add(number)
        point = self._points.get(number)
        if point is not None and (tier := self._tier.get(point)):
            tier.open.discard(number)
            index = self._lowest
            if index >= len(self._tiers) or self._tiers[index] is not tier:
                index = self._tiers.index(tier)
            self._is_open[index] = bool(tier.open)

    def candidate(self, count: int) -> int | None:
        while (index := self._is_open.find(1)) < 0:
            if not self._pool or sum(self._sizes) >= count:
                return None
            self._extend(count)
        self._lowest = index
        tier, before = self._tiers[index], sum(self._sizes[:index])
        if before >= count:
            return None
        if len(tier.open) == 1 and before + self._sizes[index] <= count:
            return next(iter(tier.open))
        number, place = tier.first(self._trials)
        return number if before + place < count else None

    def _join(self, point: Values) -> None:
        """Put a new point on its tier, and move what it displaces."""
        if not self._tiers or self._tiers[-1].front.dominates(point):
            self._pool.add(point)
            return
        last = len(self._tiers) - 1  # it does not dominate the point
        index = bisect_left(self._tiers, True, hi=last, key=lambda tier: not tier.front.dominates(point))
        joining = [point]
        while joining and index < len(self._tiers):
            leaving = self._tiers[index].front.join(joining)
            if leaving is None:  # the whole front moves back, and with it every front behind it
                self._insert(index, joining)
                return
            for each in joining:
                self._tier[each] = self._tiers[index]
            self._change(index, self._of(joining), self._of(leaving))
            index, joining = index + 1, leaving
        for each in joining:
            del self._tier[each]
        self._pool.update(joining)

    def _of(self, points: list[Values]) -> list[int]:
        return [number for point in points for number in self._trials[point]]

    def _change(self, index: int, joined: list[int], left: list[int]) -> None:
        """Trials join and leave the tier."""
        tier = self._tiers[index]
        tier.change({number: self._points[number] for number in joined}, left)
        self._sizes[index] += len(joined) - len(left)
        tier.open.difference_update(left)
        tier.open.update([number for number in joined if number not in self._promoted])
        self._is_open[index] = bool(tier.open)

    def _insert(self, index: int, points: list[Values]) -> None:
        """A new tier of these points."""
        tier = Tier(points, copies_last=self._copies_last)
        self._tiers.insert(index, tier)
        self._sizes.insert(index, 0)
        self._is_open.insert(index, 0)
        self._tier.update(dict.fromkeys(points, tier))
        self._change(index, self._of(points), [])

    def _extend(self, count: int) -> None:
        """Take fronts out of the pool until the tiers hold `count` trials and some more."""
        enough = count * (1 + SLACK)
        rows = np.array(list(self._pool))
        rows = rows[np.lexsort(rows.T[::-1])] if len(rows) else rows
        while len(rows) and sum(self._sizes) < enough:
            mask = pareto.first_front(rows)
            points = list(map(tuple, rows[mask].tolist()))
            self._insert(len(self._tiers), points)
            self._pool.difference_update(points)
            rows = rows[~mask]
