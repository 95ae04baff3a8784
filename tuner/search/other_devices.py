"""What other devices measured of the same code, as hints for a search on this one; see `tuner.search.transfer`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from kernels.dispatch import table
from kernels.dispatch.registry import Problem
from tuner import problems
from tuner.search import transfer
from tuner.search.cache import Cache, choice_of
from tuner.search.candidates import Group
from tuner.strategies.contract import Hints


def hints(cache: Cache, problem: Problem, group: Group) -> Hints | None:
    """For every device the times of the group's configurations on its most similar problem; None without any."""
    if group.space is None:
        return None
    numbers = {choice: number for number, choice in enumerate(group.choices)}
    found: dict[str, dict[Problem, dict[int, float]]] = {}
    for row in cache.on_other_devices():
        there = problems.of_text(row.operation, row.dtype, row.problem)
        number = numbers.get(choice_of(row))
        if there is not None and number is not None and _differ_in_sizes_only(there, problem):
            times = found.setdefault(row.device, {}).setdefault(there, {})
            times[number] = math.nan if row.milliseconds is None else row.milliseconds
    devices = cache.backend.devices() if found else {}
    measured = []
    for device, by_problem in found.items():
        nearest = min(by_problem, key=lambda each: table.distance(each, problem))
        milliseconds, known = np.full(len(group.space), np.nan), np.zeros(len(group.space), dtype=bool)
        for number, each in by_problem[nearest].items():
            milliseconds[number], known[number] = each, True
        likeness = _likeness(devices[device], cache.device.to_dict())
        measured.append(transfer.OtherDevice(group.space, milliseconds, known, likeness))
    return transfer.hints(group.space, measured)


def _differ_in_sizes_only(one: Problem, other: Problem) -> bool:
    same = (one.device, one.dtype, one.flags) == (other.device, other.dtype, other.flags)
    return same and [name for name, _ in one.sizes] == [name for name, _ in other.sizes]


def _likeness(one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """Higher for the same kind of device, the same generation of it, and a similar number of units."""
    same = sum(one.get(name) == other.get(name) for name in ("kind", "name", "capability"))
    return (1 + same) / (1 + abs(math.log(_units(one) / _units(other))))


def _units(device: Mapping[str, Any]) -> int:
    """The number of units; 1 if it is unknown, or what an imported file says is no number."""
    found = device.get("units")
    return found if type(found) is int and 0 < found < 2**63 else 1
