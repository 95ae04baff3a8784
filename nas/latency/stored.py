"""Measured latencies as rows of the study database, for programs that only read them; needs no torch.

A row of PIECE is a block on its own, one of MODEL an architecture as a whole, one of SUM the sum of its pieces. The
problem of a row is JSON: its conditions, and the piece that was timed.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nas.store.measurements import Measurement

# Pieces of earlier versions were timed alone and are called "latency of a piece".
PIECE, MODEL, SUM = "latency of a piece in sequence", "latency of a model", "sum of the pieces of a model"
GAUGE = "latency of the gauge"
OPERATIONS = (PIECE, MODEL, SUM, GAUGE, "latency of a piece")
HELD = {"reused": "weights of an earlier call", "hot": "in a small model"}  # by the caches, in words
CONDITIONS = ("phase", "batch", "length", "threads", "depth", "new_tokens")


@dataclass(frozen=True, kw_only=True)
class Compared:
    """An architecture that was measured as a whole and as the sum of its pieces, in milliseconds.

    architecture: its hash. conditions: phase, batch, length and threads. device: its key. predicted: the sum times the
    median correction of the other architectures in the same conditions, so it does not know its own measurement; None
    without two others.
    """

    architecture: str
    conditions: Mapping[str, Any]
    device: str
    measured: float
    low: float
    high: float
    sum: float
    predicted: float | None

    @property
    def error(self) -> float | None:
        """predicted / measured - 1."""
        return None if self.predicted is None else self.predicted / self.measured - 1


def parsed(text: str) -> dict[str, Any]:
    """The problem or the configuration of a row; empty if the row is damaged."""
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def conditions(evidence: Mapping[str, Any]) -> dict[str, Any]:
    """Those that the evidence of a trial, or the problem of a row, names; without damaged ones."""
    return {name: evidence[name] for name in CONDITIONS if isinstance(evidence.get(name), int | str)}


def milliseconds(row: Measurement) -> tuple[float, float]:
    """(the first call of a piece in a model, a later one)."""
    first = row.milliseconds or 0.0
    told = parsed(row.configuration).get("told")
    return first, told.get("repeated", first) if isinstance(told, dict) else first


def compared(models: Iterable[Measurement], sums: Iterable[Measurement]) -> list[Compared]:
    """Each architecture with both, by the newest rows. Rows of different code, devices or conditions are kept apart."""
    known = {_key(row): row for row in sums if row.milliseconds}
    pairs = {_key(row): (row, known[_key(row)]) for row in models if row.milliseconds and _key(row) in known}
    groups: dict[Any, list[tuple[dict[str, Any], Measurement, Measurement]]] = {}
    for whole, parts in pairs.values():
        problem = parsed(whole.problem)
        if "phase" not in conditions(problem):
            continue
        alike = whole.device, whole.source, tuple(conditions(problem).items())
        groups.setdefault(alike, []).append((problem, whole, parts))
    return [each for group in groups.values() for each in _compared(group)]


def _key(row: Measurement) -> tuple[str, str, str]:
    return row.device, row.source, row.problem


def _compared(group: Sequence[tuple[dict[str, Any], Measurement, Measurement]]) -> list[Compared]:
    ratios = [(whole.milliseconds or 0.0) / (parts.milliseconds or 1.0) for _, whole, parts in group]
    found = []
    for place, (problem, whole, parts) in enumerate(group):
        measured, added = whole.milliseconds or 0.0, parts.milliseconds or 0.0
        others = ratios[:place] + ratios[place + 1 :]
        found.append(
            Compared(
                architecture=problem.get("architecture", ""),
                conditions=conditions(problem),
                device=whole.device,
                measured=measured,
                low=whole.low or measured,
                high=whole.high or measured,
                sum=added,
                predicted=added * statistics.median(others) if len(others) > 1 else None,
            )
        )
    return found


def described(problem: Mapping[str, Any]) -> tuple[str, str]:
    """(the name of the block, its scalar options as text) of the problem of a piece."""
    try:
        ((name, options),) = json.loads(problem["piece"])["block"].items()
    except (KeyError, ValueError, TypeError, AttributeError):
        return "unknown", ""
    held = [word for key, word in HELD.items() if problem.get(key)]
    scalars = {key: value for key, value in dict(options).items() if isinstance(value, bool | int | float | str)}
    if name == "sequence" and not scalars and not options.get("of"):
        return "nothing", "the cost of timing alone"
    shown = " ".join(f"{key}={str(value).lower()}" for key, value in scalars.items())
    return name, ", ".join(filter(None, [shown, *held]))
