"""Numbers and rows as people read them."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

WIDE = 10_000  # columns of a page that nothing is folded on


def short(value: float) -> str:
    """A number as people read it: 2.413, 38.1M, 0.00031."""
    size = abs(value)
    for factor, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if size >= factor:
            return f"{value / (factor if unit != 'k' else 1e3):.3g}{unit}"
    return f"{value:.4g}"


def duration(seconds: float) -> str:
    """A length of time as people say it: 40 s, 12 min, 3.5 h, 2.0 days."""
    for factor, unit, digits in ((86_400 * 2, "days", 1), (5400, "h", 1), (90, "min", 0)):
        if seconds >= factor:
            return f"{seconds / {'days': 86_400, 'h': 3600, 'min': 60}[unit]:.{digits}f} {unit}"
    return f"{seconds:.0f} s"


def table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Rows as a table: numbers short and to the right, text as it is, without markup."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    made = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        numeric = any(isinstance(row.get(column), int | float) for row in rows)
        made.add_column(Text(column), justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        made.add_row(*(Text(_cell(row.get(column))) for column in columns))
    return made


def rendered(rows: Sequence[Mapping[str, Any]], width: int = WIDE) -> str:
    """The table as text, without a line end; no line is folded below `width`."""
    text = io.StringIO()
    Console(file=text, width=width, highlight=False, color_system=None).print(table(rows))
    return "\n".join(line.rstrip() for line in text.getvalue().rstrip().splitlines())


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return short(value)
    return f"{value:,}" if isinstance(value, int) else str(value)
