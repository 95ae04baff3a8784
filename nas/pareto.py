"""Comparing by several objectives at once, all of them minimised: fronts, crowding, hypervolume.

A row of `values` is one trial, a column one objective: [N, M]. A row dominates another if it is nowhere worse and
somewhere better, so equal rows are on one front. Deb et al. 2002, "A fast and elitist multiobjective genetic algorithm:
NSGA-II", https://doi.org/10.1109/4235.996017; with two objectives the fronts come from one sorted sweep in O(N log N)
(Jensen 2003, https://doi.org/10.1109/TEVC.2003.817234).
"""

from __future__ import annotations

import operator
from bisect import bisect_right
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

Rows = NDArray[np.float64]
Indices = NDArray[np.int64]
Mask = NDArray[np.bool_]

LARGEST = float(np.finfo(np.float64).max / 4)  # the difference of two such values is still finite


def dominates(a: Sequence[float], b: Sequence[float]) -> bool:
    """Whether `a` is nowhere worse than `b` and somewhere better. Raises ValueError if their lengths differ."""
    if len(a) != len(b):
        raise ValueError(f"Both must have as many values, but got {len(a)} and {len(b)}.")
    return all(map(operator.le, a, b)) and any(map(operator.lt, a, b))


def ranks(values: ArrayLike) -> Indices:
    """The front of each row: 0 for the rows that no row dominates, 1 for those that only front 0 dominates, ...; [N].

    Raises ValueError if `values` is not [N, M] or holds NaN.
    """
    rows = _rows(values)
    if not len(rows):
        return np.zeros(0, dtype=np.int64)
    unique, inverse = _distinct(rows)  # sorted: a row comes after all that dominate it
    if unique.shape[1] == 1:
        fronts = np.arange(len(unique))
    elif unique.shape[1] == 2:
        fronts = _sweep(unique)
    else:
        fronts = _peel(unique)
    return fronts[inverse]


def _distinct(rows: Rows) -> tuple[Rows, Indices]:
    """(the distinct rows in lexicographic order, the place of each row among them): faster than `np.unique`."""
    order = np.lexsort(rows.T[::-1])
    ordered = rows[order]
    differs = np.append(True, (ordered[1:] != ordered[:-1]).any(axis=1))
    places = np.empty(len(rows), dtype=np.int64)
    places[order] = np.cumsum(differs) - 1
    return ordered[differs], places


def front(values: ArrayLike) -> Indices:
    """The indices of the rows that no other row dominates, ascending.

    O(N log N) for one or two objectives (Kung, Luccio, Preparata 1975, "On finding the maxima of a set of vectors"),
    O(N log N + N F) with more, F the size of the front. Raises ValueError if `values` is not [N, M] or holds NaN.
    """
    rows = _rows(values)
    if not len(rows):
        return np.zeros(0, dtype=np.int64)
    order = np.lexsort(rows.T[::-1])
    return np.sort(order[first_front(rows[order])])


def first_front(rows: Rows) -> Mask:
    """Which rows no other row dominates, for `rows` [N, M] in lexicographic order; [N]."""
    if rows.shape[1] == 1:
        return rows[:, 0] == rows[0, 0]
    if rows.shape[1] == 2:
        return _first_of_two(rows)
    mask = np.zeros(len(rows), dtype=bool)
    left = _likeliest_first(rows)
    columns = rows.T[:, left]
    while left.size:  # the first row that is left is on the front: keep it, drop what it dominates
        best = columns[:, :1]
        mask[left[(columns == best).all(axis=0)]] = True
        stays = (columns < best).any(axis=0)
        left, columns = left[stays], columns[:, stays]
    return mask


def _likeliest_first(rows: Rows) -> Indices:
    """An order in which each row comes after all that dominate it: by the sum of the columns, scaled to one range.

    So the first rows dominate many others. `rows` [N, M] are in lexicographic order, which decides between equal sums.
    """
    if not np.isfinite(rows).all():
        return np.arange(len(rows))
    low, high = rows.min(axis=0), rows.max(axis=0)
    with np.errstate(over="ignore", invalid="ignore"):
        sums = ((rows - low) / np.where(high > low, high - low, 1)).sum(axis=1)
    return np.argsort(sums, kind="stable") if np.isfinite(sums).all() else np.arange(len(rows))


def _first_of_two(rows: Rows) -> Mask:
    """From left to right, a row is on the front if its second value is below those of all rows before it."""
    differs = np.append(True, (rows[1:] != rows[:-1]).any(axis=1))  # equal rows are one group
    distinct = rows[differs, 1]
    lower = np.append(True, distinct[1:] < np.minimum.accumulate(distinct)[:-1])
    return lower[np.cumsum(differs) - 1]


def crowding(values: ArrayLike, fronts: Indices | None = None) -> Rows:
    """The crowding distance of each row within its front: the sum over the objectives of the gap between its two
    neighbours, divided by the span of the front; infinite at the ends. [N]. Values beyond `LARGEST` count as `LARGEST`.

    fronts: from `ranks`; None if all rows are on one front. Raises ValueError if `values` is not [N, M] or holds NaN.
    """
    rows = np.clip(_rows(values), -LARGEST, LARGEST)
    fronts = np.zeros(len(rows), dtype=np.int64) if fronts is None else fronts
    distance = np.zeros(len(rows))
    for column in rows.T:
        order = np.lexsort((column, fronts))
        group, sorted_column = fronts[order], column[order]
        starts, ends = np.ones((2, len(rows)), dtype=bool)
        starts[1:] = ends[:-1] = group[1:] != group[:-1]
        first, last = np.flatnonzero(starts), np.flatnonzero(ends)
        span = np.repeat(sorted_column[last] - sorted_column[first], last - first + 1)
        inner = np.flatnonzero(~(starts | ends) & (span > 0))
        distance[order[inner]] += (sorted_column[inner + 1] - sorted_column[inner - 1]) / span[inner]
        distance[order[starts | ends]] = np.inf
    return distance


def order(values: ArrayLike) -> Indices:
    """The indices of the rows from best to worst: by front, then the less crowded first, then as they came; [N].

    Raises ValueError if `values` is not [N, M] or holds NaN.
    """
    rows = _rows(values)
    fronts = ranks(rows)
    return np.lexsort((-crowding(rows, fronts), fronts))


def hypervolume(values: ArrayLike, reference: Sequence[float]) -> float:
    """The volume between the rows and `reference`, which bounds it from above: exact, for any number of objectives.

    Rows that are not better than the reference in every objective add nothing. O(N log N) for two objectives; with
    more, the space is cut into slabs along the last one, so it is meant for some hundreds of rows. Raises ValueError if
    `reference` does not have one number per objective.
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
