"""The holes of a space: how often each value was tried, how it scored, and which holes matter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dashboards.analysis.tabulated import Numbers

TREES, DEPTH, LEAF = 40, 6, 3
LEAST_TRIALS, MOST_TRIALS = 12, 400
MOST_VALUES = 12  # of a hole: those with the best results
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
    """{hole: its value in each point} for the holes that have at least two values."""
    paths = dict.fromkeys(path for point in points for path in point)
    columns = {path: [plain(point.get(path, NONE)) for point in points] for path in paths}
    return {path: column for path, column in columns.items() if len(set(map(repr, column))) > 1}


def plain(value: Any) -> Any:
    """A value that can be compared and shown."""
    return value if isinstance(value, int | float | str | bool) else NONE if value is None else repr(value)


def tried(columns: Mapping[str, Sequence[Any]], scores: Numbers, sign: int) -> list[Tried]:
    """The values of each hole with their trials, in the order of the values.

    scores: [trials]; NaN without a result. sign: 1 if smaller is better, -1 if larger is.
    """
    found = []
    for hole, column in columns.items():
        values: dict[str, list[int]] = {}
        for place, value in enumerate(column):
            values.setdefault(repr(value), []).append(place)
        own = [_tried(hole, column[places[0]], scores[places], sign) for places in values.values()]
        found += sorted(own, key=lambda each: order_of(each.value))
    return found


def best_values(found: Sequence[Tried], sign: int, most: int = MOST_VALUES) -> list[Tried]:
    """The `most` values with the best results, then those that most trials had; in the order given."""
    ranked = sorted(
        found, key=lambda each: (each.best is None, 0.0 if each.best is None else sign * each.best, -each.trials)
    )
    chosen = {id(each) for each in ranked[:most]}
    return [each for each in found if id(each) in chosen]


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
    """The importance of each hole in a forest of 40 trees, the largest first. scores: [trials]; NaN without a result.

    It is permutation importance (Breiman 2001, "Random forests", https://doi.org/10.1023/A:1010933404324): how much
    worse a tree predicts its out-of-bag trials if the values of one hole are shuffled among them, as a share of the
    variance. The trees are extremely randomised (Geurts et al. 2006, https://doi.org/10.1007/s10994-006-6226-1).
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
    y = np.clip(y, *np.quantile(y, (0.02, 0.98)))  # else a diverged trial would dominate the variance
    y = y / (np.abs(y).max() or 1.0)  # the importance is relative, and squares of 1e160 are infinite
    x = np.stack([_encoded([column[place] for place in known.tolist()], y) for column in columns.values()], axis=1)
    each = _losses(x, y, generator) / (y.var() or 1.0)
    mean, half = each.mean(axis=0), Z * each.std(axis=0, ddof=1) / np.sqrt(TREES)
    found = [Importance(hole, float(m), float(m - h), float(m + h)) for hole, m, h in zip(columns, mean, half)]
    return sorted(found, key=lambda each: -each.value)


def _losses(x: Numbers, y: Numbers, generator: np.random.Generator) -> Numbers:
    """How much the mean squared error of each tree grows if a hole is shuffled, [trees, holes]. x: [trials, holes]."""
    from sklearn.ensemble import ExtraTreesRegressor  # takes a second to import

    forest = ExtraTreesRegressor(
        TREES,
        max_depth=DEPTH,
        min_samples_leaf=LEAF,
        max_features=0.5,
        bootstrap=True,
        random_state=int(generator.integers(2**31)),
    ).fit(x, y)
    losses = np.zeros((TREES, x.shape[1]))
    for number, (tree, seen) in enumerate(zip(forest.estimators_, forest.estimators_samples_)):
        unseen = np.setdiff1d(np.arange(len(y)), seen)
        if not len(unseen):
            continue
        rows, truth = x[unseen].astype(np.float32), y[unseen]
        loss = ((tree.tree_.predict(rows)[:, 0] - truth) ** 2).mean()
        for hole in np.unique(tree.tree_.feature[tree.tree_.feature >= 0]):
            shuffled = rows.copy()
            shuffled[:, hole] = generator.permutation(rows[:, hole])
            losses[number, hole] = ((tree.tree_.predict(shuffled)[:, 0] - truth) ** 2).mean() - loss
    return losses


def _encoded(column: Sequence[Any], y: Numbers) -> Numbers:
    """[trials]. Numbers stay; other values are numbered by their mean score, so a split separates good from bad."""
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in column):
        return np.clip(np.asarray(column, dtype=np.float64), -1e37, 1e37)  # the forest computes in float32
    keys = [repr(value) for value in column]
    groups = {key: np.asarray([i for i, other in enumerate(keys) if other == key]) for key in dict.fromkeys(keys)}
    order = sorted(groups, key=lambda key: float(y[groups[key]].mean()))
    place = {key: i for i, key in enumerate(order)}
    return np.asarray([place[key] for key in keys], dtype=np.float64)
