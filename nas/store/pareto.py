"""The Pareto front: the points that no other point beats. Every value is to be minimised.

A point is beaten by one that is nowhere worse and somewhere better; so equal points are on the front together.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def front(points: Sequence[Sequence[float]] | np.ndarray) -> list[int]:
    """points: [N][M] finite -> the indices of the front, ascending.

    O(N log N) for M of 1 or 2 (Kung, Luccio, Preparata 1975, "On finding the maxima of a set of vectors");
    O(N log N + N F M) beyond, F the size of the front.
    """
    if len(points) == 0:
        return []
    table = np.asarray(points, dtype=float)  # [N, M]
    if table.shape[1] == 1:
        return np.flatnonzero(table[:, 0] == table[:, 0].min()).tolist()
    return sorted(_of_two(table) if table.shape[1] == 2 else _of_many(table))


def _of_two(points: np.ndarray) -> list[int]:
    """Left to right, a point is on the front when it is lower than all before it. [N, 2]"""
    order = np.lexsort((points[:, 1], points[:, 0]))
    ordered = points[order]
    differs = np.append(True, (ordered[1:] != ordered[:-1]).any(axis=1))  # from the one before: equal ones go together
    distinct = ordered[differs, 1]
    lower = np.append(True, distinct[1:] < np.minimum.accumulate(distinct)[:-1])
    return order[lower[np.cumsum(differs) - 1]].tolist()


def _of_many(points: np.ndarray) -> list[int]:
    """The lexicographically least of those left is on the front: keep it, drop what it beats, go on. [N, M]"""
    left = np.lexsort(points.T[::-1])
    kept: list[int] = []
    while left.size:
        best = points[left[0]]
        rest = points[left]
        equal = (rest == best).all(axis=1)
        kept.extend(left[equal].tolist())
        left = left[(rest < best).any(axis=1)]
    return kept
