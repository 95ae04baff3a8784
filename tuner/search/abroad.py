"""Other devices' measurements of an implementation, as hints for a search on this one; see `tuner.search.transfer`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from kernels.dispatch import table
from kernels.dispatch.registry import Implementation, Operation, Problem
from tuner import problems
from tuner.search import candidates, transfer
from tuner.search.notebook import Notebook, choice_of
from tuner.space import TuningSpace
from tuner.strategies.contract import Hints


def hints(
    notebook: Notebook, operation: Operation, implementation: Implementation, problem: Problem, space: TuningSpace
) -> Hints | None:
    """What other devices measured of the same source on the problem nearest to this one; None without any."""
    if notebook.store is None:
        return None
    numbers = {candidates.choice(implementation, space.configuration(number)): number for number in range(len(space))}
    found: dict[str, dict[Problem, dict[int, float]]] = {}
    for row in notebook.store.measurements(operation.name):
        if row.device == notebook.device.key or row.source != implementation.source:
            continue
        there = problems.of_text(row.operation, row.dtype, row.problem)
        number = numbers.get(choice_of(row)) if row.implementation == implementation.name else None
        if there is not None and number is not None and _alike(there, problem):
            times = found.setdefault(row.device, {}).setdefault(there, {})
            times[number] = math.nan if row.milliseconds is None else row.milliseconds
    devices = notebook.store.devices() if found else {}
    elsewhere = []
    for device, by_problem in found.items():
        nearest = min(by_problem, key=lambda each: table.distance(each, problem))
        milliseconds, known = np.full(len(space), np.nan), np.zeros(len(space), dtype=bool)
        for number, each in by_problem[nearest].items():
            milliseconds[number], known[number] = each, True
        alike = _likeness(devices[device], notebook.device.to_dict())
        elsewhere.append(transfer.Elsewhere(space, milliseconds, known, alike))
    return transfer.hints(space, elsewhere)


def _alike(one: Problem, other: Problem) -> bool:
    """Whether two problems differ in nothing but their sizes."""
    same = (one.device, one.dtype, one.flags) == (other.device, other.dtype, other.flags)
    return same and [name for name, _ in one.sizes] == [name for name, _ in other.sizes]


def _likeness(one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """More for the same kind of device, the same generation of it, and as many units."""
    same = sum(one.get(name) == other.get(name) for name in ("kind", "name", "capability"))
    units = abs(math.log(max(one.get("units") or 1, 1) / max(other.get("units") or 1, 1)))
    return (1 + same) / (1 + units)
