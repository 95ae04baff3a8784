"""Candidates: rows of numbers that differ from the rows of good points in one hole, in all copies of a hole, or in layers.

Single moves change one hole. Moves over all layers give every copy of a hole the same number, or shift all of them.
Moves of layers copy a layer to its neighbour, exchange two, insert or remove one. Two parents exchange single holes or
a segment of layers. N rows, D holes.
"""

from __future__ import annotations

import numpy as np

from nas.strategies._surrogate.codes import OPEN, Codes

NEAR = 0.2  # standard deviation of a step in a real interval
KINDS = ("single", "several", "alike", "layers", "cross", "segment")
SHARES = np.array([0.3, 0.15, 0.25, 0.1, 0.1, 0.1])


class Moves:
    def __init__(self, codes: Codes) -> None:
        self.codes = codes
        self._free = (codes.counts > 1) | (codes.counts == OPEN)
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
        open_columns = [np.flatnonzero(row) for row in active]
        chosen = rng.integers(len(parents), size=(count, 2))
        kinds = np.searchsorted(self._shares, rng.random(count), side="right").clip(max=len(KINDS) - 1)
        made = parents[chosen[:, 0]].copy()
        for child, (mother, father), kind in zip(made, chosen, kinds):
            columns = open_columns[mother]
            if not len(columns):
                continue
            name = KINDS[kind]
            if name == "cross":
                self._cross(child, parents[father], rng)
            elif name == "segment":
                self._segment(child, parents[father], rng)
            elif name == "alike":
                self._alike(child, rng)
            elif name == "layers":
                self._rearrange(child, rng)
            for _ in range({"single": 1, "several": 2 + int(rng.integers(3))}.get(name, 0)):
                self._change(child, int(columns[rng.integers(len(columns))]), rng)
        return made

    def _change(self, row: np.ndarray, column: int, rng: np.random.Generator) -> None:
        count = self.codes.counts[column]
        if count == OPEN:
            row[column] = min(max(row[column] + rng.normal(0, NEAR), 0.0), 1.0)
        elif self.codes.ordered[column] and count > 2 and rng.random() < 0.6:
            step = 1 if count < 12 else 1 + int(abs(rng.normal(0, count * NEAR)))
            row[column] = _stepped(row[column], step if rng.random() < 0.5 else -step, count)
        else:
            row[column] = (row[column] + 1 + rng.integers(count - 1)) % count

    def _alike(self, row: np.ndarray, rng: np.random.Generator) -> None:
        """Every copy of one hole: the same number, or one value up or down."""
        columns = self._copies[rng.integers(len(self._copies))]
        count = self.codes.counts[columns[0]]
        if count == OPEN or not self.codes.ordered[columns[0]] or rng.random() < 0.6:
            row[columns] = rng.random() if count == OPEN else rng.integers(count)
            return
        step = 1 if rng.random() < 0.5 else -1
        row[columns] = np.clip(row[columns] + step, 0, count - 1)

    def _rearrange(self, row: np.ndarray, rng: np.random.Generator) -> None:
        table = self.codes.layers[rng.integers(len(self.codes.layers))]
        count = len(table)
        one, kind = int(rng.integers(count)), rng.integers(4)
        other = (one + 1) % count if rng.random() < 0.5 else one - 1
        order = list(range(count))
        if kind == 0:
            order[other] = one  # copy to the neighbour
        elif kind == 1:
            other = int(rng.integers(count))
            order[one], order[other] = other, one
        elif kind == 2:
            order = [*order[:one], one, *order[one:-1]]  # insert
        else:
            order = [*order[:one], *order[one + 1 :], count - 1]  # remove
        _reorder(row, table, order)

    def _cross(self, row: np.ndarray, other: np.ndarray, rng: np.random.Generator) -> None:
        taken = rng.random(len(row)) < 0.5
        row[taken] = other[taken]

    def _segment(self, row: np.ndarray, other: np.ndarray, rng: np.random.Generator) -> None:
        table = self.codes.layers[rng.integers(len(self.codes.layers))]
        low, high = np.sort(rng.integers(len(table) + 1, size=2))
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
