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

PIECE, MODEL, SUM, GAUGE = (
    "latency of a piece",
    "latency of a model",
    "sum of the pieces of a model",
    "latency of the gauge",
)
OPERATIONS = (PIECE, MODEL, SUM, GAUGE)
HELD = {"again": "called again", "reused": "weights of an earlier call"}  # in words
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


def conditions(known: Mapping[str, Any]) -> dict[str, Any]:
    """Those that the evidence of a trial, or the problem of a row, names."""
    return {name: known[name] for name in CONDITIONS if name in known}


def milliseconds(row: Measurement) -> tuple[float, float]:
    """(the first call of a piece in a model, a later one)."""
    first = row.milliseconds or 0.0
    return first, json.loads(row.configuration)["details"].get("repeated", first)


def compared(models: Iterable[Measurement], sums: Iterable[Measurement]) -> list[Compared]:
    """Each architecture with both, by the newest rows. Rows of different code, devices or conditions are kept apart."""
    newest = {_key(row): row for row in models if row.milliseconds}
    groups: dict[Any, list[tuple[dict[str, Any], Measurement, float]]] = {}
    for key, added in {_key(row): row.milliseconds for row in sums if row.milliseconds}.items():
        if whole := newest.get(key):
            problem = json.loads(whole.problem)
            alike = whole.device, whole.source, tuple(conditions(problem).items())
            groups.setdefault(alike, []).append((problem, whole, added))
    return [each for group in groups.values() for each in _compared(group)]


def _key(row: Measurement) -> tuple[str, str, str]:
    return row.device, row.source, row.problem


def _compared(group: Sequence[tuple[dict[str, Any], Measurement, float]]) -> list[Compared]:
    ratios = [(whole.milliseconds or 0.0) / added for _, whole, added in group]
    found = []
    for place, (problem, whole, added) in enumerate(group):
        measured, others = whole.milliseconds or 0.0, ratios[:place] + ratios[place + 1 :]
        found.append(
            Compared(
                architecture=problem["architecture"],
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
    if "piece" not in problem:
        return "optimiser", f"elements={problem.get('update')}"
    ((name, options),) = json.loads(problem["piece"])["block"].items()
    held = [word for key, word in HELD.items() if problem.get(key)]
    scalars = {key: value for key, value in options.items() if isinstance(value, bool | int | float | str)}
    if name == "sequence" and not scalars and not options.get("of"):
        return "nothing", "the cost of timing alone"
    shown = " ".join(f"{key}={str(value).lower()}" for key, value in scalars.items())
    return name, ", ".join(filter(None, [shown, *held]))
