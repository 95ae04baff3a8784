"""The Pareto front: the points that no other point beats. Every value is to be minimised.

A point is beaten by one that is nowhere worse and somewhere better; so equal points are on the front together.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def front(points: Sequence[Sequence[float]]) -> list[int]:
    """points: [N][M] finite -> the indices of the front, ascending.

    O(N log N) for M of 1 or 2 (Kung, Luccio, Preparata 1975, "On finding the maxima of a set of vectors");
    O(N log N + N F M) beyond, F the size of the front, in NumPy.
    """
    if not points:
        return []
    width = len(points[0])
    if any(len(point) != width for point in points) or width == 0:
        raise ValueError("Every point must have the same number of values, at least one.")
    if width == 1:
        least = min(point[0] for point in points)
        return [index for index, point in enumerate(points) if point[0] == least]
    return _of_two(points) if width == 2 else _of_many(np.asarray(points, dtype=float))


def _of_two(points: Sequence[Sequence[float]]) -> list[int]:
    """Left to right, a point is on the front when it is lower than all before it, or equal to the last one kept."""
    order = sorted(range(len(points)), key=lambda index: (points[index][0], points[index][1]))
    kept = [order[0]]
    for index in order[1:]:
        last = points[kept[-1]]
        if points[index][1] < last[1] or (points[index][0] == last[0] and points[index][1] == last[1]):
            kept.append(index)
    return sorted(kept)


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
    return sorted(kept)
