"""Rows on stdout, as a table for people or as JSON for programs; notes on stderr."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from nas.report.tables import rendered, table, visible, visible_json


def note(text: str) -> None:
    """Print a line for people on stderr."""
    print(visible(text), file=sys.stderr)


def say(text: str, end: str = "\n") -> None:
    """Print a result for people on stdout."""
    print(visible(text), end=end)


_only_json: int | None = None  # a copy of the standard output, once nothing but JSON may be written to it


def only_json() -> None:
    """From now on only `print_json` writes to the standard output. What a task, a library or a process that this one
    starts prints there goes to the standard error.
    """
    global _only_json
    if _only_json is None and sys.stdout is sys.__stdout__:
        with suppress(OSError):  # one of them is closed
            print(end="", flush=True)
            _only_json = os.dup(1)
            os.dup2(2, 1)


def print_json(value: Any) -> None:
    """Print `value` as JSON: dates and paths as text, numbers that are not finite as null."""
    text = json.dumps(_plain(value), indent=2, default=str, ensure_ascii=False, allow_nan=False)
    if _only_json is None:
        print(visible_json(text))
        return
    left = f"{visible_json(text)}\n".encode(errors="replace")
    while left:
        left = left[os.write(_only_json, left) :]


def print_rows(rows: Sequence[Mapping[str, Any]], as_json: bool, *, empty: str = "Nothing yet.") -> None:
    """Print a table, or a JSON list of objects. Lines are folded only on a terminal. `empty`: the note for no rows."""
    if as_json:
        print_json(list(rows))
    elif not rows:
        note(empty)
    elif sys.stdout.isatty():
        from rich.console import Console  # a tenth of a second, which JSON does without

        Console(highlight=False).print(table(rows))
    else:
        print(rendered(rows))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
