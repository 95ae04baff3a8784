"""Members of a front kept apart by reference directions, for three objectives or more.

Deb & Jain 2014, "An Evolutionary Many-Objective Optimization Algorithm Using Reference-Point-Based Nondominated
Sorting Approach, Part I", https://doi.org/10.1109/TEVC.2013.2281535: each member belongs to its nearest direction,
and directions with few members come first. The directions are those of Das & Dennis 1998. With crowding distances
nearly all members of such a front are the end of some objective. N members, M objectives, R directions.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike

from nas.pareto import LARGEST

MOST = 2_000
FAR = 1e100  # spans of the best front: beyond it squares overflow, for example if a loss diverged


def reference_directions(objectives: int, count: int) -> np.ndarray:
    """At least `count` evenly spread directions if they are not too many: [R, M], each with the sum 1."""
    parts = 1
    found = _directions(objectives, parts)
    while len(found) < count and objectives > 1:
        more = _directions(objectives, parts + 1)
        if len(more) > MOST:
            break
        parts, found = parts + 1, more
    return found


def by_niche(values: ArrayLike, fronts: np.ndarray, directions: np.ndarray) -> np.ndarray:
    """The indices of the members from best to worst, [N]: by front, then those of the emptiest directions first.

    values: [N, M]. fronts: [N], from `pareto.ranks`.
    """
    rows = np.clip(np.asarray(values, dtype=float), -LARGEST, LARGEST)
    if not len(rows):
        return np.zeros(0, dtype=int)
    best = rows[fronts == 0]
    low, high = best.min(0), best.max(0)
    with np.errstate(over="ignore"):
        scaled = np.minimum((rows - low) / np.where(high > low, high - low, 1.0), FAR)
    units = directions / np.sqrt((directions**2).sum(1, keepdims=True))
    along = scaled @ units.T  # [N, R]
    distances = np.maximum((scaled**2).sum(1, keepdims=True) - along**2, 0.0)
    niches = distances.argmin(1)
    nearest = distances.min(1)
    places = np.zeros(len(rows), dtype=int)  # of each member within its direction
    taken: dict[int, int] = {}
    for index in np.lexsort((nearest, fronts)).tolist():
        niche = int(niches[index])
        places[index] = taken.get(niche, 0)
        taken[niche] = places[index] + 1
    sizes = np.bincount(niches, minlength=len(directions))[niches]
    return np.lexsort((sizes, places, fronts))  # not by distance: the ends of a front lie on a direction


def _directions(objectives: int, parts: int) -> np.ndarray:
    """All directions whose components are multiples of 1 / parts."""
    if objectives == 1:
        return np.ones((1, 1))
    bars = np.array(list(combinations(range(parts + objectives - 1), objectives - 1)), dtype=int)
    edges = np.hstack([np.full((len(bars), 1), -1), bars, np.full((len(bars), 1), parts + objectives - 1)])
    return (np.diff(edges, axis=1) - 1) / parts
