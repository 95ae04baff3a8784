"""The crowding distances of the trials of one front, for `nas.schedulers.crowd`."""

from __future__ import annotations

import math
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np

from nas.pareto import Indices, Rows

COPY = -1.0  # the distance of a trial after all others
CLOSED = -math.inf
NEW = math.inf


class Distances:
    """The order: the largest distance first, then the oldest trial.

    A distance is the sum of a trial's gaps, one for each objective, each divided by the span. The trials have places in
    arrays, in no order. `first` compares all distances: that is O(F), but 16,000 take only about ten microseconds.
    Gaps change one by one, so they are in lists, which are faster for that.
    """

    def __init__(self, numbers: Indices, gaps: Rows, open: AbstractSet[int]) -> None:
        """numbers: of the trials. gaps: [M, F]. open: see `Crowd`."""
        self._open = open
        self._places = dict(zip(numbers.tolist(), range(len(numbers))))
        self._least = [0.0] * len(numbers)
        self._gaps: list[list[float]] = gaps.tolist()
        self._changed: set[int] = set()  # trials with another gap since they were measured
        self.spans: list[float] = []  # when the distances were measured last; none yet
        waiting = [NEW if number in open else CLOSED for number in self._places]
        self._use(np.array([numbers, waiting, waiting]))

    def add(self, number: int, least: float = 0.0) -> None:
        """A new trial. Its gaps are 0, and its distance is `least` and what the gaps add."""
        place = self._places[number] = len(self._places)
        if place == len(self._numbers):
            self._use(np.pad(self._table, ((0, 0), (0, place + 1))))
        self._numbers[place], self._waiting[place] = number, NEW
        self._least.append(least)
        for gaps in self._gaps:
            gaps.append(0.0)
        self._changed.add(number)

    def remove(self, number: int) -> None:
        """The last trial takes its place."""
        place, last = self._places.pop(number), len(self._places)
        self._changed.discard(number)
        for each in (self._least, *self._gaps):
            each[place] = each[-1]
            each.pop()
        if place != last:
            self._table[:, place] = self._table[:, last]
            self._places[int(self._numbers[place])] = place

    def change(self, objective: int, gaps: Iterable[tuple[int, float]]) -> None:
        """gaps: (trial, its new gap in this objective)."""
        known, places = self._gaps[objective], self._places
        for number, gap in gaps:
            known[places[number]] = gap
            self._changed.add(number)

    def measure(self, spans: list[float]) -> None:
        """Compute the distances again: after another span all, otherwise those of other gaps."""
        if spans != self.spans:
            self._measure_all(spans)
        else:
            self._measure_changed(spans)
        self.spans = spans
        self._changed.clear()

    def first(self) -> tuple[int, int]:
        """The first of the open trials, and its place in the order of all. There must be an open one."""
        count = len(self._places)
        waiting, distances = self._waiting[:count], self._distances[:count]
        while True:
            place = waiting.argmax()
            largest = waiting[place]
            equal = (distances == largest).nonzero()[0]
            if len(equal) > 1:
                place = self._oldest(equal[waiting[equal] == largest])
            number = int(self._numbers[place])
            if number in self._open:
                older = np.count_nonzero(self._numbers[equal] < number) if len(equal) > 1 else 0
                return number, int(np.count_nonzero(distances > largest) + older)
            waiting[place] = CLOSED

    def _oldest(self, places: Indices) -> int:
        return int(places[self._numbers[places].argmin()])

    def _measure_all(self, spans: list[float]) -> None:
        count = len(self._places)
        waiting, found = self._waiting[:count], _sum(np.array(self._least), np.array(self._gaps), spans)
        self._distances[:count] = found
        waiting[:] = np.where(waiting == CLOSED, CLOSED, found)

    def _measure_changed(self, spans: list[float]) -> None:
        for number in self._changed:
            place = self._places[number]
            distance = _sum(self._least[place], [gaps[place] for gaps in self._gaps], spans)
            self._distances[place] = distance
            if self._waiting[place] != CLOSED:
                self._waiting[place] = distance

    def _use(self, table: Rows) -> None:
        """The rows: for trials that were found not to be open, `_waiting` has `CLOSED` in place of the distance."""
        self._table = table
        self._numbers, self._waiting, self._distances = table


def _sum(least: Any, gaps: Any, spans: list[float]) -> Any:
    """The distance of one trial or of many. If all values of an objective are equal, it adds 0 to all but the ends."""
    for gap, span in zip(gaps, spans):
        least = least + gap / (span or 1.0)
    return least
