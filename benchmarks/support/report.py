"""The output of every benchmark: the machine and a table, or, with --json, the same as JSON."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def machine() -> str:
    """The processor, cores, system and Python version in one line."""
    system = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    return f"{_processor()}, {os.cpu_count()} cores, {system}"


def report(title: str, rows: Sequence[Mapping[str, Any]], *, as_json: bool, notes: Sequence[str] = ()) -> None:
    """Print `rows`, which have the same keys, as a table or as one JSON object. Numbers are printed as given."""
    if as_json:
        print(json.dumps({"title": title, "machine": machine(), "rows": list(rows), "notes": list(notes)}, indent=2))
        return
    print(f"{title}\n{machine()}\n")
    table = [list(rows[0]), *([_cell(value) for value in row.values()] for row in rows)] if rows else []
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for line in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
    print("".join(f"\n{note}" for note in notes), end="\n" if notes else "")


def skip(reason: str) -> None:
    """Print on stderr why there is nothing to measure here. Raises SystemExit with success."""
    print(f"skipped: {reason}", file=sys.stderr)
    raise SystemExit(0)


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown processor"
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown processor"
