"""Rows on stdout, as a table for people or as JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from nas.reporting import short


def note(text: str) -> None:
    """A line for people, on stderr."""
    print(text, file=sys.stderr)


def print_json(value: Any) -> None:
    """`value` as JSON; dates and paths as text."""
    print(json.dumps(value, indent=2, default=str, ensure_ascii=False))


def print_rows(rows: Sequence[Mapping[str, Any]], as_json: bool, *, empty: str = "Nothing yet.") -> None:
    """One row a line: a table, or a JSON list of objects."""
    if as_json:
        print_json(list(rows))
    elif not rows:
        note(empty)
    else:
        console = Console(highlight=False)
        if not console.is_terminal:
            console.width = 200
        console.print(table(rows))


def table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Rows as a table: numbers short and to the right."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    made = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        numeric = any(isinstance(row.get(column), int | float) for row in rows)
        made.add_column(column.replace("_", " "), justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        made.add_row(*(_cell(row.get(column)) for column in columns))
    return made


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return short(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value)
