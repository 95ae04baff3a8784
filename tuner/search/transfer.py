"""What other devices' measurements say of a space that is new to this one.

Times of two devices differ by factors, so their logarithms are much the same up to a constant. A configuration that
another device has not measured gets what a regression on the values says, one that failed there the slowest time.
Hints decide which configurations are tried first, and a model of the new device leans on them as far as they turn out
to hold (`tuner.strategies.warm`). Nothing is served because of a hint: all of it is measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tuner.space import TuningSpace
from tuner.strategies.contract import Hints


@dataclass(frozen=True)
class Elsewhere:
    """Measurements of the same kernel on another device. times: [N] of milliseconds, NaN where it failed or is not
    known. alike: above 0, how much that device is like the one to be tuned."""

    space: TuningSpace
    times: np.ndarray
    known: np.ndarray  # [N] of bool; a known configuration without a time has failed there
    alike: float = 1.0


def hints(space: TuningSpace, elsewhere: Sequence[Elsewhere]) -> Hints | None:
    """Of all devices that know more than one time; None where there is none."""
    informed = [each for each in elsewhere if np.isfinite(each.times[each.known]).sum() > 1]
    if not informed:
        return None
    alike = np.array([each.alike for each in informed])
    return Hints(np.stack([_logarithms(space, each) for each in informed]), alike / alike.sum())


def _logarithms(space: TuningSpace, other: Elsewhere) -> np.ndarray:
    rows = np.flatnonzero(other.known)
    times = other.times[rows]
    logarithms = np.log(np.where(np.isfinite(times), times, np.nanmax(times)) / np.nanmin(times))
    by_configuration = {_key(other.space, int(row)): value for row, value in zip(rows, logarithms, strict=True)}
    found = np.array([by_configuration.get(_key(space, number), np.nan) for number in range(len(space))])
    missing = np.isnan(found)
    if missing.any():
        found[missing] = _regressed(other, rows, logarithms, space)[missing]
    return found


def _key(space: TuningSpace, number: int) -> tuple:
    return tuple(sorted(space.configuration(number).items()))


def _regressed(other: Elsewhere, rows: np.ndarray, logarithms: np.ndarray, space: TuningSpace) -> np.ndarray:
    from sklearn.ensemble import ExtraTreesRegressor  # a second to import, and seldom needed

    model = ExtraTreesRegressor(100, min_samples_leaf=2, random_state=0)
    return model.fit(_values(other.space)[rows], logarithms).predict(_values(space))


def _values(space: TuningSpace) -> np.ndarray:
    """[N, P]: the values themselves, which two spaces share where their places differ; texts by their hash order."""
    columns = []
    for column, (_, values) in enumerate(sorted(space.parameters.items())):
        known = [float(v) if isinstance(v, int | float) else float(sum(map(ord, str(v)))) for v in values]
        place = list(space.parameters).index(sorted(space.parameters)[column])
        columns.append(np.array(known)[space.places[:, place]])
    return np.stack(columns, axis=1)
