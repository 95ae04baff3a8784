"""Problems as text, in the database and in files.

A file is YAML or JSON: a list of `{operation: rms_norm, dtype: bfloat16, sizes: {rows: 4096, width: 512}, flags: {}}`.
"""

from __future__ import annotations

import json
import reprlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import yaml

from kernels.dispatch.registry import Choice, Operation, Problem, operation

KEYS = {"operation", "dtype", "sizes", "flags", "device"}


def text(problem: Problem, threads: int | None) -> str:
    """Canonical JSON. On a CPU it includes torch's number of threads: another number is another problem."""
    known: dict[str, Any] = {"device": problem.device, "flags": problem.flags, "sizes": problem.sizes}
    if problem.device == "cpu":
        known["threads"] = threads
    return json.dumps(known, sort_keys=True, separators=(",", ":"))


def of_text(operation: str, dtype: str, written: str) -> Problem | None:
    """The problem that `text` wrote; None if `written` is anything else."""
    try:
        data = json.loads(written)
        sizes, flags = (tuple((name, value) for name, value in data[key]) for key in ("sizes", "flags"))
        return Problem(operation, data["device"], dtype, sizes, flags)
    except (ValueError, KeyError, TypeError):
        return None


def configuration_text(choice: Choice) -> str:
    """Canonical JSON of the settings of a choice."""
    return json.dumps(dict(choice.configuration), sort_keys=True, separators=(",", ":"))


def named(operations: Iterable[Operation], device: str) -> dict[str, list[Problem]]:
    """The named problems of each operation, by its name."""
    return {each.name: list(each.problems(device).values()) for each in operations}


def load(path: Path, device: str) -> dict[str, list[Problem]]:
    """The problems in a file, by operation. Raises ValueError that names the file and the row."""
    try:
        rows = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError, ValueError) as error:
        raise ValueError(f"{path} cannot be read as a list of problems: {error}") from error
    if not isinstance(rows, list):
        raise ValueError(f"{path} must hold a list of problems, but holds {type(rows).__name__}.")
    found: dict[str, dict[Problem, None]] = {}
    for place, row in enumerate(rows):
        try:
            problem = _of_row(row, device)
            found.setdefault(problem.operation, {})[problem] = None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{path}: problem {place} of the list: {str(error)[:500]}") from error
    return {name: list(problems) for name, problems in found.items()}


def _of_row(row: Mapping[str, Any], device: str) -> Problem:
    if not isinstance(row, Mapping) or not {"operation", "dtype", "sizes"} <= set(row) <= KEYS:
        raise ValueError(f"needs operation, dtype and sizes, may have flags and device, but got {reprlib.repr(row)}.")
    known = operation(row["operation"])
    flags = dict(row.get("flags") or {})
    for what, given, wanted in (("sizes", row["sizes"], known.sizes), ("flags", flags, known.flags)):
        if wanted and set(given) != set(wanted):
            raise ValueError(f"{what} of {known.name} are {', '.join(wanted)}, but got {', '.join(given)}.")
    if not all(type(size) is int and size >= 0 for size in row["sizes"].values()):
        raise ValueError(f"sizes of {known.name} must be whole numbers by name, but got {reprlib.repr(row['sizes'])}.")
    if not isinstance(getattr(torch, str(row["dtype"]), None), torch.dtype):
        raise ValueError(f"dtype must be one of torch, such as float32, but got {row['dtype']!r}.")
    if row.get("device", device) != device:
        raise ValueError(f"is for the device {row['device']!r}, but this is for {device!r}.")
    sizes = tuple((name, row["sizes"][name]) for name in known.sizes or row["sizes"])
    ordered = tuple((name, flags[name]) for name in known.flags or flags)
    return Problem(known.name, device, row["dtype"], sizes, ordered)


def as_row(problem: Problem) -> dict[str, Any]:
    """A problem as a row of a file."""
    row: dict[str, Any] = {"operation": problem.operation, "dtype": problem.dtype, "sizes": dict(problem.sizes)}
    return row | ({"flags": dict(problem.flags)} if problem.flags else {})


def on_device(problems: Iterable[Problem], device: str) -> dict[str, list[Problem]]:
    """The problems with their device replaced by `device`, each once, by operation."""
    found: dict[str, list[Problem]] = {}
    for problem in problems:
        found.setdefault(problem.operation, []).append(replace(problem, device=device))
    return {name: list(dict.fromkeys(same)) for name, same in sorted(found.items())}
