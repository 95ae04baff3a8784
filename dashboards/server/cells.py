"""Values as people read them in the cells of a table: with units, and with as many decimals as others of the column."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from markupsafe import Markup, escape

from dashboards.view import Column, Table
from nas.report.tables import duration, short, size

DIGITS = 4  # of the largest value of a column; the smallest has at least three
MOST_DECIMALS = 6
CODE = re.compile("`([^`]+)`")


def cell(value: Any, column: Column, decimals: int | None = None) -> str:
    """A value as people read it in a table. decimals: of a number; None for as many as it needs."""
    if value is None or value == "":
        return ""
    if isinstance(value, bool):
        return "yes" if value else ""
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    if not isinstance(value, int | float) or (isinstance(value, float) and not math.isfinite(value)):
        return str(value)
    if column.kind == "seconds":
        return duration(value)
    if column.kind == "bytes":
        return size(value)
    if column.kind == "percent":
        return f"{value:.1f}"
    if decimals is not None:
        return f"{value:.{decimals}f}"
    if isinstance(value, int) or (value.is_integer() and abs(value) < 1e6):
        return f"{int(value):,}"
    return short(value)


def decimals(table: Table) -> dict[str, int | None]:
    """The decimals that the numbers of each column share, so that their points are below one another."""
    return {each.key: _shared([row.get(each.key) for row in table.rows]) for each in table.columns}


def _shared(values: Sequence[Any]) -> int | None:
    """None where the values are no floats, are all whole numbers, or differ too much in size."""
    known = [each for each in values if each is not None and each != ""]
    if not all(isinstance(each, float) and math.isfinite(each) for each in known):
        return None
    sizes = [abs(each) for each in known if each]
    if all(each.is_integer() for each in known) or not 1e-4 <= min(sizes) <= max(sizes) < 1e4:
        return None
    wanted = max(DIGITS - 1 - math.floor(math.log10(max(sizes))), 2 - math.floor(math.log10(min(sizes))))
    return wanted if wanted <= MOST_DECIMALS else None


def marked(text: str) -> Markup:
    """A sentence of ours as HTML: what is between backticks is code."""
    return Markup(CODE.sub(r"<code>\1</code>", str(escape(text))))
