"""Candidates: rows that differ from those of good points in one hole, in all copies of a hole, or in layers.

Single moves change one hole. Moves over all layers give every copy of a hole the same number, or shift all of them.
Moves of layers copy a layer to its neighbour, exchange two, insert or remove one. Two parents exchange single holes or
a segment of layers. N rows, D holes.
"""

from __future__ import annotations

import numpy as np

from nas.strategies._surrogate.codes import OPEN, Codes

NEAR = 0.2  # of the range: the size of a step of a number
KINDS = ("single", "several", "alike", "layers", "cross", "segment")
DRAWS = 2 + 3 * 4  # random numbers of one child
SHARES = np.array([0.3, 0.15, 0.25, 0.1, 0.1, 0.1])


class Moves:
    def __init__(self, codes: Codes) -> None:
        self.codes = codes
        self._free = (codes.counts > 1) | (codes.counts == OPEN)
        self._counts, self._ordered = codes.counts.tolist(), codes.ordered.tolist()
        sizes = np.bincount(codes.groups, minlength=len(codes.names))
        self._copies = [
            columns
            for columns in (np.flatnonzero(codes.groups == group) for group in np.flatnonzero(sizes > 1))
            if self._free[columns[0]]
        ]
        shares = SHARES.copy()
        if not self._copies:
            shares[KINDS.index("alike")] = 0
        if not codes.layers:
            shares[[KINDS.index("layers"), KINDS.index("segment")]] = 0
        self._shares = np.cumsum(shares / shares.sum())

    def children(self, parents: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
        """`count` changed copies of `parents` [P, D]: [N, D]."""
        active = self.codes.active(parents) & self._free
        open_columns = [np.flatnonzero(row).tolist() for row in active]
        drawn = rng.random((count, DRAWS)).tolist()
        kinds = np.searchsorted(self._shares, rng.random(count), side="right").clip(max=len(KINDS) - 1).tolist()
        mothers = rng.integers(len(parents), size=count)
        made = parents[mothers]
        for child, mother, kind, numbers in zip(made, mothers.tolist(), kinds, drawn):
            columns = open_columns[mother]
            name = KINDS[kind]
            father = parents[int(numbers[0] * len(parents))]
            if not columns:
                continue
            if name == "cross":
                taken = rng.random(len(child)) < 0.5
                child[taken] = father[taken]
            elif name == "segment":
                self._segment(child, father, numbers)
            elif name == "alike":
                self._alike(child, numbers)
            elif name == "layers":
                self._rearrange(child, numbers)
            else:
                for change in range(1 if name == "single" else 2 + int(numbers[1] * 3)):
                    place, first, second = numbers[2 + 3 * change : 5 + 3 * change]
                    self._change(child, columns[int(place * len(columns))], first, second)
        return made

    def _change(self, row: np.ndarray, column: int, first: float, second: float) -> None:
        """Give one hole another number. first, second: random numbers."""
        count = self._counts[column]
        if count == OPEN:
            row[column] = min(max(row[column] + NEAR * (4 * first - 2), 0.0), 1.0)
        elif self._ordered[column] and count > 2 and first < 0.6:
            step = 1 if count < 12 else 1 + int(first / 0.6 * count * NEAR)
            row[column] = _stepped(row[column], step if second < 0.5 else -step, count)
        else:
            row[column] = (row[column] + 1 + int(second * (count - 1))) % count

    def _alike(self, row: np.ndarray, numbers: list[float]) -> None:
        """Every copy of one hole: the same number, or one value up or down."""
        columns = self._copies[int(numbers[1] * len(self._copies))]
        count = self._counts[columns[0]]
        if count == OPEN:
            row[columns] = numbers[2]
        elif not self._ordered[columns[0]] or numbers[3] < 0.6:
            row[columns] = int(numbers[2] * count)
        else:
            row[columns] = np.clip(row[columns] + (1 if numbers[2] < 0.5 else -1), 0, count - 1)

    def _rearrange(self, row: np.ndarray, numbers: list[float]) -> None:
        table = self.codes.layers[int(numbers[1] * len(self.codes.layers))]
        count = len(table)
        one, kind = int(numbers[2] * count), int(numbers[3] * 4)
        order = list(range(count))
        if kind == 0:
            order[(one + 1) % count if numbers[4] < 0.5 else one - 1] = one  # copy to the neighbour
        elif kind == 1:
            other = int(numbers[4] * count)
            order[one], order[other] = other, one
        elif kind == 2:
            order = [*order[:one], one, *order[one:-1]]  # insert
        else:
            order = [*order[:one], *order[one + 1 :], count - 1]  # remove
        _reorder(row, table, order)

    def _segment(self, row: np.ndarray, other: np.ndarray, numbers: list[float]) -> None:
        table = self.codes.layers[int(numbers[1] * len(self.codes.layers))]
        low, high = sorted(int(each * (len(table) + 1)) for each in numbers[2:4])
        columns = table[low:high].ravel()
        columns = columns[columns != OPEN]
        row[columns] = other[columns]


def _reorder(row: np.ndarray, table: np.ndarray, order: list[int]) -> None:
    """Give copy i of a repeat the numbers of copy order[i]."""
    source = table[order]
    both = (table != OPEN) & (source != OPEN)
    row[table[both]] = row[source[both]]


def _stepped(number: float, step: int, count: int) -> float:
    """`step` values further, or in the other direction if the hole ends there."""
    moved = number + step
    return moved if 0 <= moved < count else min(max(number - step, 0), count - 1)
