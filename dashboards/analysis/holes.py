"""The holes of a space: how often each value was tried, how it scored, and which holes matter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dashboards.analysis import forest
from dashboards.analysis.tabulated import Numbers

TREES, LEAST_TRIALS, MOST_TRIALS = 40, 12, 400
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
    """The importance of each hole in a forest of 40 trees, the largest first. scores: [trials]; NaN without a result.

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
    # Else a diverged trial would dominate the variance. `np.quantile` imports `numpy.ma`, see `thinning.distinct`.
    low, high = np.interp(np.array([0.02, 0.98]) * (len(y) - 1), np.arange(len(y)), np.sort(y))
    y = np.clip(y, low, high)
    y = y / (np.abs(y).max() or 1.0)  # the importance is relative, and squares of 1e160 are infinite
    x = np.stack([_encoded([column[place] for place in known.tolist()], y) for column in columns.values()], axis=1)
    each = forest.losses(x, y, TREES, generator) / (y.var() or 1.0)
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
