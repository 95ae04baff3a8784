"""Checksums, so that a changed value is noticed. That of a unit that is done covers all that the unit found.

Those of studies, versions of spaces, architectures and trials cover what says how results came about and what they
mean. They leave out what changes with every unit (states, rungs, times), which the rules of `damage` check.
It is computed from the values, never from a text that a database made of them. So SQLite and PostgreSQL give the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

UNIT = ("kind", "rung", "steps", "seconds", "device", "sequence", "checkpoint_uri", "checkpoint_sha256")
OBJECTIVE, METRIC = ("name", "value"), ("name", "step", "value")
SCORES = ("split", "metric", "names", "totals", "weights")
STUDY = ("name", "config", "seed", "objectives", "data_hash", "version")
SPACE = ("study_id", "number", "text")
ARCHITECTURE = ("hash", "text")
DRAWING = ("study_id", "architecture_hash", "packed")
TRIAL = (
    *("study_id", "number", "place", "arm", "purpose", "architecture_hash", "seed", "operator", "parents", "choices"),
    *("space_version", "known_results", "known_trials", "variant", "recipe"),
    *("cheap_values", "evidence", "parameters", "step_flops"),
)
DOCUMENTS = {"config", "objectives", "parents", "choices", "recipe", "cheap_values", "evidence"}
DOUBLES = {"seconds", "value", "step_flops"}  # a database may return a whole number as an int


def of_unit(
    unit: Mapping[str, Any],
    objectives: Iterable[Mapping[str, Any]],
    metrics: Iterable[Mapping[str, Any]],
    scores: Iterable[Mapping[str, Any]],
) -> str:
    """The checksum of the row of a unit and of the rows that belong to it, in any order: 32 hexadecimal digits."""
    parts = [[_row(unit, UNIT)]]
    for rows, columns in ((objectives, OBJECTIVE), (metrics, METRIC), (scores, SCORES)):
        parts.append(sorted(_row(row, columns) for row in rows))
    return _hash(parts)


def of_document(document: Any) -> str:
    """The checksum of plain data, such as a verdict."""
    return _hash(json.loads(json.dumps(document)))


def of_row(row: Mapping[str, Any], columns: Iterable[str]) -> str:
    """The checksum of these columns of a row. Documents are plain data."""
    return _hash({name: _value(row[name], double=name in DOUBLES) for name in columns})


def _row(row: Mapping[str, Any], columns: Iterable[str]) -> list[Any]:
    return [_value(row[name], double=name in DOUBLES) for name in columns]


def _value(value: Any, *, double: bool) -> Any:
    if value is None or not double:
        return json.dumps(value)  # as text, because a null cannot be sorted
    return (float(value) + 0.0).hex()  # every bit of it; SQLite stores -0.0 as 0


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:32]
