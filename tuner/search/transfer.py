"""Transfers times from other devices to a configuration space that is new to this one.

The times of two devices differ by a factor, so their logarithms are equal up to a constant and an error. A
configuration that the other device has not measured gets the prediction of a regression on the parameter values; one
that failed there gets the slowest time. The hints decide which configurations are tried first, and the model of the new
device uses them as far as they turn out to be true (`tuner.strategies._warm`). No choice is served because of a hint:
everything is measured.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels.dispatch import table
from kernels.dispatch.registry import Choice, Problem
from tuner import problems
from tuner.search.cache import Cache, choice_of
from tuner.search.candidates import Group
from tuner.search.results import FORGOTTEN
from tuner.space import TuningSpace
from tuner.strategies.contract import Hints

MOST_DEVICES = 16  # the most similar ones: each takes about 0.05 s for 2,000 configurations


@dataclass(frozen=True)
class OtherDevice:
    """Measurements of the same kernel on another device. times: [N] of milliseconds, NaN if failed or unknown; one that
    is not above 0, or infinite, counts as failed, because it may come from a damaged file. known: [N] of bool; a known
    configuration without a time failed there. likeness: above 0, how similar that device is to the one to be tuned."""

    space: TuningSpace
    times: np.ndarray
    known: np.ndarray
    likeness: float = 1.0


def hints(space: TuningSpace, devices: Sequence[OtherDevice]) -> Hints | None:
    """The hints of the most similar devices that know more than one time; None if there is no such device. A space with
    other parameters says nothing."""
    alike = [each for each in devices if each.space.parameters.keys() == space.parameters.keys()]
    informed = [each for each in alike if _valid(each.times[each.known]).sum() > 1]
    if len(informed) > MOST_DEVICES:
        informed = sorted(informed, key=lambda each: -each.likeness)[:MOST_DEVICES]
    if not informed:
        return None
    likeness = np.array([each.likeness for each in informed])
    return Hints(np.stack([_logarithms(space, each) for each in informed]), likeness / likeness.sum())


def _valid(times: np.ndarray) -> np.ndarray:
    return np.isfinite(times) & (times > 0)


def _logarithms(space: TuningSpace, other: OtherDevice) -> np.ndarray:
    """[N] of the logarithms of times relative to the fastest on that device."""
    rows = np.flatnonzero(other.known)
    valid = _valid(other.times[rows])
    logarithms = np.log(other.times[rows], where=valid, out=np.full(len(rows), -np.inf))
    logarithms = np.where(valid, logarithms, logarithms.max()) - logarithms[valid].min()
    by_configuration = {_key(other.space, int(row)): value for row, value in zip(rows, logarithms, strict=True)}
    found = np.array([by_configuration.get(_key(space, number), np.nan) for number in range(len(space))])
    missing = np.isnan(found)
    if missing.any():
        found[missing] = _predicted(other, rows, logarithms, space)[missing]
    return found


def _key(space: TuningSpace, number: int) -> tuple:
    return tuple(sorted(space.configuration(number).items()))


def _predicted(other: OtherDevice, rows: np.ndarray, logarithms: np.ndarray, space: TuningSpace) -> np.ndarray:
    from sklearn.ensemble import ExtraTreesRegressor  # takes a second to import, and is seldom needed

    model = ExtraTreesRegressor(100, min_samples_leaf=2, random_state=0)
    return model.fit(_values(other.space)[rows], logarithms).predict(_values(space))


def _values(space: TuningSpace) -> np.ndarray:
    """[N, P] of parameter values, which mean the same in two spaces; a text is the sum of its character codes."""
    columns = []
    for column, (_, values) in enumerate(sorted(space.parameters.items())):
        known = [float(v) if isinstance(v, int | float) else float(sum(map(ord, str(v)))) for v in values]
        place = list(space.parameters).index(sorted(space.parameters)[column])
        columns.append(np.array(known)[space.places[:, place]])
    return np.stack(columns, axis=1)


def of_similar(group: Group, similar: Sequence[tuple[float, Mapping[Choice, float]]]) -> Hints | None:
    """Hints for a group of candidates; similar: (likeness, milliseconds of each choice, NaN of one that failed)."""
    if group.space is None:
        return None
    others = []
    for likeness, times in similar:
        milliseconds, known = np.full(len(group.space), np.nan), np.zeros(len(group.space), dtype=bool)
        for number, choice in group.numbers_of(times):
            milliseconds[number], known[number] = times[choice], True
        others.append(OtherDevice(group.space, milliseconds, known, likeness))
    return hints(group.space, others)


def measured_alike(cache: Cache) -> dict[tuple[str, Problem], dict[Choice, float]]:
    """What was measured of this code: by device and problem the milliseconds of each choice, NaN of one that failed."""
    found: dict[tuple[str, Problem], dict[Choice, float]] = {}
    for row in cache.rows_of_this_code:
        problem = problems.of_text(row.operation, row.dtype, row.problem)
        if problem is not None and row.failure != FORGOTTEN:
            time = math.nan if row.milliseconds is None else row.milliseconds
            found.setdefault((row.device, problem), {})[choice_of(row)] = time
    return found


def from_other_devices(cache: Cache, problem: Problem, group: Group) -> Hints | None:
    """For every other device the times of the group's configurations on its most similar problem; None without any."""
    found: dict[str, list[tuple[float, Mapping[Choice, float]]]] = {}
    for (device, other), times in measured_alike(cache).items():
        if device != cache.device.key and _differ_in_sizes_only(other, problem):
            found.setdefault(device, []).append((table.distance(other, problem), times))
    devices, here = cache.results.devices() if found else {}, cache.device.to_dict()
    nearest = {device: min(some, key=lambda pair: pair[0])[1] for device, some in found.items()}
    return of_similar(group, [(_likeness(devices[device], here), times) for device, times in nearest.items()])


def _differ_in_sizes_only(one: Problem, other: Problem) -> bool:
    same = (one.device, one.dtype, one.flags) == (other.device, other.dtype, other.flags)
    return same and [name for name, _ in one.sizes] == [name for name, _ in other.sizes]


def _likeness(one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """Higher for the same kind of device, the same generation of it, and a similar number of units."""
    same = sum(one.get(name) == other.get(name) for name in ("kind", "name", "capability"))
    return (1 + same) / (1 + abs(math.log(_units(one) / _units(other))))


def _units(device: Mapping[str, Any]) -> int:
    """The number of units; 1 if it is unknown."""
    return max(int(device.get("units") or 1), 1)
