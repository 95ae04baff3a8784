"""What other devices' measurements say of a space that is new to this one.

Times of two devices differ by factors, but the order of configurations is much the same: every other device gives each
configuration it has measured the normal score of its rank, and one it has not, what a regression on the features says.
The mean over the devices, weighted by how alike the devices are, is a hint: it decides which configurations are tried
first, and a model of the new device may lean on it. Nothing is served because of a hint: all of it is measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri
from scipy.stats import rankdata

from tuner.space import TuningSpace


@dataclass(frozen=True)
class Elsewhere:
    """Measurements of the same kernel on another device. times: [N] of milliseconds, NaN where it failed or is not
    known. alike: above 0, how much that device is like the one to be tuned."""

    space: TuningSpace
    times: np.ndarray
    known: np.ndarray  # [N] of bool; a known configuration without a time has failed there
    alike: float = 1.0


def hints(space: TuningSpace, elsewhere: Sequence[Elsewhere]) -> np.ndarray | None:
    """[N]: low for configurations that were fast elsewhere, standardised; None where nothing is known."""
    informed = [each for each in elsewhere if np.isfinite(each.times[each.known]).sum() > 1]
    if not informed:
        return None
    total = np.sum([each.alike * _scores(space, each) for each in informed], axis=0)
    return (total - total.mean()) / (total.std() + 1e-9)


def _scores(space: TuningSpace, other: Elsewhere) -> np.ndarray:
    rows = np.flatnonzero(other.known)
    times = np.where(np.isfinite(other.times[rows]), other.times[rows], np.inf)
    scores = ndtri(rankdata(times) / (len(times) + 1))
    by_configuration = {_key(other.space, int(row)): score for row, score in zip(rows, scores, strict=True)}
    found = np.array([by_configuration.get(_key(space, number), np.nan) for number in range(len(space))])
    missing = np.isnan(found)
    if missing.any():
        found[missing] = _regressed(other, rows, scores, space)[missing]
    return found


def _key(space: TuningSpace, number: int) -> tuple:
    return tuple(sorted(space.configuration(number).items()))


def _regressed(other: Elsewhere, rows: np.ndarray, scores: np.ndarray, space: TuningSpace) -> np.ndarray:
    from sklearn.ensemble import ExtraTreesRegressor  # a second to import, and seldom needed

    model = ExtraTreesRegressor(100, min_samples_leaf=2, random_state=0)
    return model.fit(_values(other.space)[rows], scores).predict(_values(space))


def _values(space: TuningSpace) -> np.ndarray:
    """[N, P]: the values themselves, which two spaces share where their places differ; texts by their hash order."""
    columns = []
    for column, (_, values) in enumerate(sorted(space.parameters.items())):
        known = [float(v) if isinstance(v, int | float) else float(sum(map(ord, str(v)))) for v in values]
        place = list(space.parameters).index(sorted(space.parameters)[column])
        columns.append(np.array(known)[space.places[:, place]])
    return np.stack(columns, axis=1)
