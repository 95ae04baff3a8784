"""Whether one set of trials has a better front than another: a permutation test of the hypervolume.

All values are minimised and scaled to the range of both sets together; a value beyond Tukey's upper fence (third
quartile plus 1.5 times the interquartile range) counts as the fence, so a diverged trial does not hide the others. The
reference point is a tenth of the range beyond the worst value. A share is that of the hypervolume of both sets.

If both sets were drawn in the same way, every way to deal the trials out to two sets of these sizes is equally likely.
The difference of the shares is compared with those of `DEALS` random deals (Pitman 1937; Good 2005, "Permutation,
Parametric and Bootstrap Tests of Hypotheses", chapter 3). Only trials of one group, those that were trained equally
long, change places. The interval is the difference minus the upper and the lower 2.5 % point of the deals: it excludes
0 exactly if the test does. A trial without a value takes part, with an empty volume.

N trials, M objectives, P deals, K sample points.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from nas.pareto import LARGEST
from nas.statistics.fence import fence

CONFIDENCE = 0.95
DEALS = 2000
BEYOND = 1.1  # the reference point, in ranges
SAMPLES = 2048  # points from which the volume of three objectives or more is estimated
DIGITS = 9  # of a difference: the order of a sum changes later ones
CHUNK = 1_000_000  # entries of one matrix


@dataclass(frozen=True)
class Comparison:
    """one, other: shares of the hypervolume of both sets. low, high: the interval of their difference."""

    one: float
    other: float
    low: float
    high: float

    @property
    def difference(self) -> float:
        """By how much the first share is larger."""
        return self.one - self.other


def compare(
    one: Sequence[Sequence[float] | None],
    other: Sequence[Sequence[float] | None],
    groups: Sequence[Hashable] | None = None,
    deals: int = DEALS,
) -> Comparison | None:
    """The fronts of two sets of trials. None is a trial without values; the answer is None if all are.

    groups: of the trials of `one`, then of those of `other`; None is one group. A trial with a value that is not finite
    counts as one without values. The same trials always give the same interval.
    """
    every = [values if values is not None and all(map(math.isfinite, values)) else None for values in (*one, *other)]
    if all(values is None for values in every):
        return None
    rows = scaled(every)
    generator = np.random.default_rng(0)
    actual = np.arange(len(every)) < len(one)
    first, second = volumes(rows, actual[None])[0], volumes(rows, ~actual[None])[0]
    whole = volumes(rows, np.ones((1, len(every)), dtype=bool))[0]
    members = _members(groups if groups is not None else [None] * len(every))
    chance = [volumes(rows, dealt) - volumes(rows, ~dealt) for dealt in _deals(generator, actual, members, deals)]
    tail = (1 - CONFIDENCE) / 2
    differences = np.round(np.concatenate(chance) / whole, DIGITS)
    low = float(np.quantile(differences, tail, method="lower"))
    high = float(np.quantile(differences, 1 - tail, method="higher"))
    found = float(np.round((first - second) / whole, DIGITS))  # a deal like the actual one has this very number
    return Comparison(float(first / whole), float(second / whole), max(found - high, -1.0), min(found - low, 1.0))


def scaled(values: Sequence[Sequence[float] | None]) -> np.ndarray:
    """[N, M] in units of the distance from the best value to the reference point; a row without values is at 1."""
    known = np.clip(np.array([each for each in values if each is not None], dtype=float), -LARGEST, LARGEST)
    low = known.min(axis=0)
    high = np.minimum(known.max(axis=0), [fence(column) for column in known.T.tolist()])
    span = np.where(high > low, high - low, 1.0) * BEYOND
    rows = np.ones((len(values), known.shape[1]))
    rows[[each is not None for each in values]] = np.minimum(known - low, high - low) / span
    return rows


def volumes(rows: np.ndarray, masks: np.ndarray) -> np.ndarray:
    """The hypervolume of the rows [N, M] that each of `masks` [P, N] chooses; the reference is 1 everywhere. [P].

    With three objectives or more, points are drawn from the boxes that the rows dominate (Karp & Luby 1983,
    "Monte-Carlo algorithms for enumeration and reliability problems"). In the whole space few points would be in them,
    because a front of many objectives dominates a tiny part. At least one row must have values.
    """
    if rows.shape[1] == 1:
        return 1 - np.where(masks, rows[:, 0], 1.0).min(axis=1)
    if rows.shape[1] == 2:
        order = np.argsort(rows[:, 0], kind="stable")
        across, down = rows[order].T
        lowest = np.minimum.accumulate(np.where(masks[:, order], down, 1.0), axis=1)
        return (1 - lowest) @ np.diff(across, append=1.0)
    boxes = (1 - rows).prod(axis=1)  # the volume of each row alone; 0 for one without values
    generator = np.random.default_rng(1)
    owners = rows[generator.choice(len(rows), SAMPLES, p=boxes / boxes.sum())]
    points = np.maximum(1 - generator.random(owners.shape) * (1 - owners), owners)  # each in the box of its owner
    dominated = (rows[:, None, :] <= points).all(axis=2)  # [N, K]
    weights = boxes.sum() / SAMPLES / dominated.sum(axis=0)
    return (masks.astype(np.float32) @ dominated.astype(np.float32) > 0) @ weights


def _members(groups: Sequence[Hashable]) -> list[np.ndarray]:
    """The places of the trials of each group."""
    found: dict[Hashable, list[int]] = {}
    for place, group in enumerate(groups):
        found.setdefault(group, []).append(place)
    return [np.array(places) for places in found.values()]


def _deals(
    generator: np.random.Generator, actual: np.ndarray, members: Sequence[np.ndarray], deals: int
) -> Iterator[np.ndarray]:
    """Masks [P, N] with as many trials of each group as `actual` [N] has, in pieces that fit into memory."""
    piece = max(1, CHUNK // len(actual))
    for start in range(0, deals, piece):
        size = min(piece, deals - start)
        dealt = np.zeros((size, len(actual)), dtype=bool)
        for places in members:
            order = generator.random((size, len(places))).argsort(axis=1)
            dealt[:, places] = order < actual[places].sum()
        yield dealt
