"""The holes of a space: how often each value was tried, how it scored, and which holes matter.

The importance is permutation importance (Breiman 2001, "Random forests", https://doi.org/10.1023/A:1010933404324): how
much worse a tree predicts its out-of-bag trials if the values of one hole are shuffled among them. The trees are
extremely randomised (Geurts et al. 2006, https://doi.org/10.1007/s10994-006-6226-1), so a forest takes half a second.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dashboards.analysis.tabulated import Numbers

TREES, LEAST_TRIALS, MOST_TRIALS = 40, 12, 400
LEAF = 3  # trials in a leaf, at least
MOST_HOLES = 60
NONE = "none"  # the hole is not in this architecture
Z = 1.645  # of a 90% interval


@dataclass(frozen=True)
class Importance:
    """How much of the variance of an objective a hole explains, with a 90% interval over the trees."""

    hole: str
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Tried:
    """A value of a hole: how many trials had it, and their scores. best, mean, low, high: None without a result."""

    hole: str
    value: Any
    trials: int
    scored: int
    best: float | None
    mean: float | None
    low: float | None
    high: float | None


def varied(points: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """{hole: its value in each point} for the first 60 holes that have at least two values."""
    paths = dict.fromkeys(path for point in points for path in point)
    columns = {path: [plain(point.get(path, NONE)) for point in points] for path in paths}
    counts = {path: len(set(map(repr, column))) for path, column in columns.items()}
    chosen = [path for path in paths if counts[path] > 1]
    return {path: columns[path] for path in chosen[:MOST_HOLES]}


def plain(value: Any) -> Any:
    """A value that can be compared and shown."""
    return value if isinstance(value, int | float | str | bool) else NONE if value is None else repr(value)


def tried(columns: Mapping[str, Sequence[Any]], scores: Numbers, sign: int, most_values: int = 12) -> list[Tried]:
    """The values of each hole with their trials, at most `most_values` for a hole.

    scores: [trials]; NaN without a result. sign: 1 if smaller is better, -1 if larger is.
    """
    found = []
    for hole, column in columns.items():
        values: dict[str, list[int]] = {}
        shown: dict[str, Any] = {}
        for place, value in enumerate(column):
            values.setdefault(repr(value), []).append(place)
            shown[repr(value)] = value
        for key in sorted(values, key=lambda key: order_of(shown[key]))[:most_values]:
            found.append(_tried(hole, shown[key], scores[values[key]], sign))
    return found


def order_of(value: Any) -> tuple[int, float, str]:
    """The sort key of a value: numbers by size, then texts."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return (0, float(value), "") if is_number else (1, 0.0, str(value))


def _tried(hole: str, value: Any, scores: Numbers, sign: int) -> Tried:
    known = scores[np.isfinite(scores)]
    if not len(known):
        return Tried(hole, value, len(scores), 0, None, None, None, None)
    mean = float(known.mean())
    half = 1.96 * float(known.std(ddof=1)) / np.sqrt(len(known)) if len(known) > 1 else 0.0
    best = float((sign * known).min() * sign)
    return Tried(hole, value, len(scores), len(known), best, mean, mean - half, mean + half)


def importances(columns: Mapping[str, Sequence[Any]], scores: Numbers, seed: int = 0) -> list[Importance]:
    """The importance of each hole, the largest first. scores: [trials]; NaN without a result.

    Returns [] with fewer than 12 results, or if all are equal. At most 400 trials are used.
    """
    known = np.flatnonzero(np.isfinite(scores))
    if len(known) < LEAST_TRIALS or not columns:
        return []
    generator = np.random.default_rng(seed)
    if len(known) > MOST_TRIALS:
        known = np.sort(generator.choice(known, MOST_TRIALS, replace=False))
    y = scores[known]
    if np.ptp(y) == 0:
        return []
    y = np.clip(y, *np.quantile(y, [0.02, 0.98]))  # else a diverged trial would dominate the variance
    x = np.stack([_encoded([column[place] for place in known.tolist()], y) for column in columns.values()], axis=1)
    each = np.asarray([_of_tree(x, y, generator) for _ in range(TREES)])
    mean, half = each.mean(axis=0), Z * each.std(axis=0, ddof=1) / np.sqrt(TREES)
    found = [Importance(hole, float(m), float(m - h), float(m + h)) for hole, m, h in zip(columns, mean, half)]
    return sorted(found, key=lambda each: -each.value)


def _encoded(column: Sequence[Any], y: Numbers) -> Numbers:
    """[trials]. Numbers stay; other values are numbered by their mean score, so a split separates good from bad."""
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in column):
        return np.asarray(column, dtype=np.float64)
    keys = [repr(value) for value in column]
    groups = {key: np.asarray([i for i, other in enumerate(keys) if other == key]) for key in dict.fromkeys(keys)}
    order = sorted(groups, key=lambda key: float(y[groups[key]].mean()))
    place = {key: i for i, key in enumerate(order)}
    return np.asarray([place[key] for key in keys], dtype=np.float64)


Tree = tuple[int, float, Any, Any] | float  # (feature, threshold, left, right) or a prediction


def _of_tree(x: Numbers, y: Numbers, generator: np.random.Generator) -> Numbers:
    """The importance of each feature in one tree, as a share of the variance of y; [features].

    x: [trials, features]; y: [trials].
    """
    count = len(y)
    seen = generator.integers(0, count, count)
    unseen = np.flatnonzero(np.bincount(seen, minlength=count) == 0)
    used: set[int] = set()
    tree = _grown(x[seen], y[seen], generator, used)
    own, target = x[unseen], y[unseen]
    features = list(used)
    copies = np.tile(own, (1 + len(features), 1, 1))  # as it is, and with one feature shuffled in each other copy
    for copy, feature in zip(copies[1:], features):
        copy[:, feature] = generator.permutation(copy[:, feature])
    predicted = _predicted(tree, copies.reshape(-1, x.shape[1])).reshape(len(copies), -1)
    errors = ((predicted - target) ** 2).mean(axis=1)
    loss = np.zeros(x.shape[1])
    loss[features] = errors[1:] - errors[0]
    return loss / (y.var() or 1.0)


def _grown(x: Numbers, y: Numbers, generator: np.random.Generator, used: set[int], depth: int = 6) -> Tree:
    mean = float(y.sum()) / len(y)  # np.mean and np.ptp would take half of the time of such small arrays
    if depth == 0 or len(y) < 2 * LEAF or y.min() == y.max():
        return mean
    low, high = x.min(axis=0), x.max(axis=0)
    open_ = generator.permutation(np.flatnonzero(high > low))
    tried_ = open_[: max(3, len(open_) // 2)]
    thresholds = generator.uniform(low[tried_], high[tried_])
    left = x[:, tried_] <= thresholds  # [trials, features]
    many = left.sum(axis=0)
    inside = (many >= LEAF) & (many <= len(y) - LEAF)
    if not inside.any():
        return mean
    sums = (y - mean) @ left  # the gain is larger if the spread within both sides is smaller
    gain = np.where(inside, sums**2 * (1 / np.maximum(many, 1) + 1 / np.maximum(len(y) - many, 1)), -1.0)
    best = int(np.argmax(gain))
    feature, threshold = int(tried_[best]), float(thresholds[best])
    used.add(feature)
    side = left[:, best]
    below = (_grown(x[some], y[some], generator, used, depth - 1) for some in (side, ~side))
    return (feature, threshold, *below)  # type: ignore[return-value]


def _predicted(tree: Tree, x: Numbers) -> Numbers:
    found = np.empty(len(x))
    left: list[tuple[Tree, NDArray[np.int64]]] = [(tree, np.arange(len(x)))]
    while left:
        node, rows = left.pop()
        if isinstance(node, float):
            found[rows] = node
        elif len(rows):
            feature, threshold, below, above = node
            side = x[rows, feature] <= threshold
            left += [(below, rows[side]), (above, rows[~side])]
    return found
