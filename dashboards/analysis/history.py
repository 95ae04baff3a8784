"""The best value and the hypervolume of a search over time, and what random search would have reached."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dashboards.analysis.tabulated import Numbers, Tabulated
from nas import pareto

POINTS = 80  # trials at which the hypervolume is computed, at most
CONFIDENCE = 0.9  # of the band


@dataclass(frozen=True)
class Growth:
    """A value after each of some trials. rows: the rows of these trials. low, high: an interval, or empty."""

    rows: NDArray[np.int64]
    values: Numbers
    low: Numbers
    high: Numbers


_NONE = np.zeros(0)


def in_order(table: Tabulated, arm: str | None = None) -> NDArray[np.int64]:
    """The rows of `longest`, of one arm if given, ordered by the end of their last units."""
    mask = table.longest if arm is None else table.longest & (table.texts["arm"] == arm)
    rows = np.flatnonzero(mask)
    return rows[np.argsort(table.sequence[rows], kind="stable")]


def best_so_far(table: Tabulated, objective: str, arm: str | None = None) -> Growth:
    """The best value after each trial that improved it, and after the last trial."""
    rows = in_order(table, arm)
    if not len(rows):
        return Growth(rows, _NONE, _NONE, _NONE)
    sign = table.signs[objective]
    best = np.minimum.accumulate(sign * table.values[objective][rows])
    shown = np.append(True, best[1:] < best[:-1])
    shown[-1] = True
    return Growth(rows[shown], sign * best[shown], _NONE, _NONE)


def by_chance(values: Sequence[float] | Numbers, draws: NDArray[np.int64], sign: int = 1) -> tuple[Numbers, ...]:
    """(median, low, high) of the best of n values drawn from `values` with replacement, for each n in `draws`.

    The control arm has few trials. Its distribution predicts the best of n trials: P(best of n > v) = P(one > v)^n, if
    smaller values are better. sign: 1 if smaller values are better, -1 if larger ones are.
    """
    ordered = np.sort(sign * np.asarray(values, dtype=np.float64))
    ends = 0.5, (1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2
    found = []
    for share in ends:
        place = np.ceil((1 - (1 - share) ** (1 / np.maximum(draws, 1))) * len(ordered)).astype(int) - 1
        found.append(sign * ordered[np.clip(place, 0, len(ordered) - 1)])
    return tuple(found)


def hypervolume(table: Tabulated, objectives: Sequence[str], arm: str | None = None) -> Growth:
    """The hypervolume of the front after some trials, as a share of the hypervolume of all trials.

    The reference point is the worst value of each objective among all trials, so arms can be compared.
    """
    every = in_order(table)
    rows = in_order(table, arm)
    if not len(rows) or len(objectives) < 2:
        return Growth(rows[:0], _NONE, _NONE, _NONE)
    values = table.minimised(objectives, every)
    low, high = values.min(axis=0), values.max(axis=0)
    span = np.where(high > low, high - low, 1.0)
    corner = [1.0 + 1e-9] * len(objectives)
    whole = pareto.hypervolume((values - low) / span, corner) or 1.0
    own = (table.minimised(objectives, rows) - low) / span
    ends = np.unique(np.linspace(1, len(rows), min(POINTS, len(rows))).astype(int))
    front, reached, start = own[:0], [], 0
    for end in ends:
        both = np.concatenate([front, own[start:end]])
        front, start = both[pareto.front(both)], end
        reached.append(pareto.hypervolume(front, corner) / whole)
    return Growth(rows[ends - 1], np.asarray(reached), _NONE, _NONE)
