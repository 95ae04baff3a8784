"""Comparing by several objectives at once, all of them minimised: fronts, crowding, hypervolume.

A row of `values` is one trial, a column one objective: [N, M]. Deb et al. 2002, "A fast and elitist multiobjective
genetic algorithm: NSGA-II", https://doi.org/10.1109/4235.996017; with two objectives the fronts come from one sorted
sweep in O(N log N) (Jensen 2003, https://doi.org/10.1109/TEVC.2003.817234).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

Rows = NDArray[np.float64]
Indices = NDArray[np.int64]


def dominates(a: Sequence[float], b: Sequence[float]) -> bool:
    """Whether `a` is nowhere worse than `b` and somewhere better."""
    return all(x <= y for x, y in zip(a, b, strict=True)) and any(x < y for x, y in zip(a, b, strict=True))


def ranks(values: ArrayLike) -> Indices:
    """The front each row belongs to: 0 for those nothing dominates, 1 for those only front 0 dominates, ...; [N]."""
    rows = _rows(values)
    if not len(rows):
        return np.zeros(0, dtype=np.int64)
    unique, inverse = np.unique(rows, axis=0, return_inverse=True)  # sorted: a row comes after all that dominate it
    if unique.shape[1] == 1:
        fronts = np.arange(len(unique))
    elif unique.shape[1] == 2:
        fronts = _sweep(unique)
    else:
        fronts = _peel(unique)
    return fronts[inverse.reshape(-1)]


def front(values: ArrayLike) -> Indices:
    """The indices of the rows that no other row dominates, ascending. Equal rows are on the front together.

    O(N log N) for one or two objectives (Kung, Luccio, Preparata 1975, "On finding the maxima of a set of vectors",
    https://doi.org/10.1145/321906.321910); O(N log N + N F M) beyond, F the size of the front.
    """
    rows = _rows(values)
    if not len(rows):
        return np.zeros(0, dtype=np.int64)
    if rows.shape[1] == 1:
        return np.flatnonzero(rows[:, 0] == rows[:, 0].min())
    return np.sort(_front_of_two(rows) if rows.shape[1] == 2 else _front_of_many(rows))


def crowding(values: ArrayLike, fronts: Indices | None = None) -> Rows:
    """How lonely each row is within its front: the sum of the gaps between its neighbours, each objective scaled to the
    front's span; infinite at the ends. `fronts`: from `ranks`; None when all rows are of one front. [N]."""
    rows = _rows(values)
    fronts = np.zeros(len(rows), dtype=np.int64) if fronts is None else fronts
    distance = np.zeros(len(rows))
    for column in rows.T:
        order = np.lexsort((column, fronts))
        group, sorted_column = fronts[order], column[order]
        starts = np.r_[True, group[1:] != group[:-1]][: len(rows)]
        ends = np.r_[group[1:] != group[:-1], True][: len(rows)]
        edges = np.flatnonzero(starts), np.flatnonzero(ends)
        span = np.repeat(sorted_column[edges[1]] - sorted_column[edges[0]], np.diff(np.r_[edges[0], len(rows)]))
        inner = np.flatnonzero(~(starts | ends) & (span > 0))
        distance[order[inner]] += (sorted_column[inner + 1] - sorted_column[inner - 1]) / span[inner]
        distance[order[starts | ends]] = np.inf
    return distance


def order(values: ArrayLike) -> Indices:
    """The rows from best to worst: by front, then the lonelier first, then as they came; [N]."""
    rows = _rows(values)
    fronts = ranks(rows)
    return np.lexsort((-crowding(rows, fronts), fronts))


def hypervolume(values: ArrayLike, reference: Sequence[float]) -> float:
    """The volume between the rows and `reference`, which bounds it from above: exact, for any number of objectives.

    Rows that are not better than the reference in every objective add nothing. O(N log N) for two objectives; with
    more, the space is cut into slabs along the last one, so it is meant for some hundreds of rows.
    """
    rows = _rows(values)
    corner = np.asarray(reference, dtype=np.float64)
    if rows.size and rows.shape[1] != len(corner):
        raise ValueError(f"reference must have one number per objective ({rows.shape[1]}), but got {len(corner)}.")
    inside = rows[(rows < corner).all(axis=1)] if rows.size else rows
    return _volume(inside[front(inside)], corner) if len(inside) else 0.0


def _volume(rows: Rows, corner: Rows) -> float:
    if len(corner) == 1:
        return float(corner[0] - rows.min())
    if len(corner) == 2:
        x, y = rows[np.lexsort((rows[:, 1], rows[:, 0]))].T
        lowest = np.minimum.accumulate(y)
        return float(((np.r_[x[1:], corner[0]] - x) * (corner[1] - lowest)).sum())
    rows = rows[np.argsort(rows[:, -1], kind="stable")]
    thickness = np.r_[rows[1:, -1], corner[-1]] - rows[:, -1]
    volume = 0.0
    for count in np.flatnonzero(thickness) + 1:
        slab = rows[:count, :-1]
        volume += float(thickness[count - 1]) * _volume(slab[front(slab)], corner[:-1])
    return volume


def _front_of_two(rows: Rows) -> Indices:
    """Left to right, a row [N, 2] is on the front if its second value is lower than those of all rows before it."""
    order = np.lexsort((rows[:, 1], rows[:, 0]))
    ordered = rows[order]
    differs = np.append(True, (ordered[1:] != ordered[:-1]).any(axis=1))  # from the row before it
    distinct = ordered[differs, 1]
    lower = np.append(True, distinct[1:] < np.minimum.accumulate(distinct)[:-1])
    return order[lower[np.cumsum(differs) - 1]]


def _front_of_many(rows: Rows) -> Indices:
    """The lexicographically least of the remaining rows [N, M] is on the front: keep it, drop what it dominates."""
    left = np.lexsort(rows.T[::-1])
    kept: list[Indices] = []
    while left.size:
        best, rest = rows[left[0]], rows[left]
        kept.append(left[(rest == best).all(axis=1)])
        left = left[(rest < best).any(axis=1)]
    return np.concatenate(kept)


def _sweep(rows: Rows) -> Indices:
    """Fronts of distinct rows [N, 2] in lexicographic order: a row joins the first front whose lowest second value is
    above its own, because the last row of a front dominates it otherwise."""
    lowest: list[float] = []
    fronts = np.empty(len(rows), dtype=np.int64)
    for index, second in enumerate(rows[:, 1].tolist()):
        rank = bisect_right(lowest, second)
        if rank == len(lowest):
            lowest.append(second)
        else:
            lowest[rank] = second
        fronts[index] = rank
    return fronts


def _peel(rows: Rows) -> Indices:
    """Fronts of distinct rows [N, M] in lexicographic order: one more than the highest front that dominates a row."""
    fronts = np.zeros(len(rows), dtype=np.int64)
    for index in range(1, len(rows)):
        above = (rows[:index] <= rows[index]).all(axis=1)
        if above.any():
            fronts[index] = fronts[:index][above].max() + 1
    return fronts


def _rows(values: ArrayLike) -> Rows:
    rows = np.asarray(values, dtype=np.float64)
    if rows.size == 0:
        return rows.reshape(0, rows.shape[1] if rows.ndim == 2 else 0)
    if rows.ndim != 2:
        raise ValueError(f"values must be [trials, objectives], but got the shape {list(rows.shape)}.")
    if np.isnan(rows).any():
        raise ValueError("values must be numbers, but some are not a number (NaN): a trial without a value has failed.")
    return rows
