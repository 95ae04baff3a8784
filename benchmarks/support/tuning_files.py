"""The files of the tuner that `benchmarks.fuzz` corrupts: a table and a lock file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from kernels.dispatch import table
from kernels.dispatch.registry import Choice, Problem
from nas.errors import UsageError

_PROBLEM = Problem("softmax", "cpu", "float32", (("rows", 16), ("columns", 64)), (("gradients", False),))
_CHOICE = Choice.of("blocked", {"rows": 64})


def files() -> dict[str, tuple[bytes, Callable[[Path], Any]]]:
    """Each file with its reader, which raises UsageError if it is refused."""
    entries = [table.Entry(_PROBLEM, _CHOICE, 0.25, "8ce87d92dfab945f")]
    return {
        "a table": (table.written(entries, threads=1).encode(), _read_table),
        "a lock file": (table.written(entries, miss="error").encode(), _read_table),
    }


def _read_table(path: Path) -> None:
    try:
        table.read(path)
    except ValueError as error:
        raise UsageError(str(error)) from error
