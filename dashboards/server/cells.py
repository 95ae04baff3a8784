"""Formats values for the cells of a table: with units, and with the same number of decimals in a column."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup, escape

from dashboards.figures.figure import labelled
from dashboards.view import Column, Table
from nas.report.tables import duration, short, size

DIGITS = 4  # of the largest value of a column; the smallest has at least two
UNITS = (  # least largest value of a column, divisor of all its values, unit, most decimals
    *((1e12, 1e12, "T", 3), (1e9, 1e9, "G", 3), (1e6, 1e6, "M", 3)),
    *((1e4, 1e3, "k", 3), (0.0, 1.0, "", 6)),
)
CODE = re.compile("`([^`]+)`")


@dataclass(frozen=True)
class Scaled:
    """The format of all numbers of a column. It aligns their decimal points: 4.10M and 11.00M."""

    decimals: int
    factor: float = 1.0
    unit: str = ""

    def text(self, value: float) -> str:
        """The number in this unit, with these decimals."""
        return f"{value / self.factor:.{self.decimals}f}{self.unit}"


def cell(value: Any, column: Column, scaled: Scaled | None = None) -> str:
    """A value as text for a table. scaled: the format of its column; None if the column has no common format."""
    if value is None or value == "":
        return ""
    if isinstance(value, bool):
        return "yes" if value else ""
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    if column.kind == "quantity":
        return labelled(str(value))
    if not isinstance(value, int | float) or (isinstance(value, float) and not math.isfinite(value)):
        return str(value)
    if column.kind == "seconds":
        return f"{value:.1f} s" if 0 < value < 9.95 else duration(value)
    if column.kind == "bytes":
        return size(value)
    if column.kind == "percent":
        return f"{value:.1f}"
    if scaled is not None:
        return scaled.text(value)
    if isinstance(value, int) or (value.is_integer() and abs(value) < 1e6):
        return f"{int(value):,}"
    return short(value)


def scales(table: Table) -> dict[str, Scaled | None]:
    """The number format of each column; None for a column without a common format."""
    return {each.key: _shared([row.get(each.key) for row in table.rows]) for each in table.columns}


def _shared(values: Sequence[Any]) -> Scaled | None:
    """The format of these values. None if one is no float, all are whole and below a million, or they differ much."""
    known = [each for each in values if each is not None and each != ""]
    if not all(isinstance(each, float) and math.isfinite(each) for each in known):
        return None
    sizes = [abs(each) for each in known if each]
    if not sizes or min(sizes) < 1e-4 or (max(sizes) < 1e6 and all(each.is_integer() for each in known)):
        return None
    _, factor, unit, most = next(each for each in UNITS if max(sizes) >= each[0])
    smallest, largest = (math.floor(math.log10(each / factor)) for each in (min(sizes), max(sizes)))
    decimals = max(0, DIGITS - 1 - largest, 1 - smallest)
    return Scaled(decimals, factor, unit) if decimals <= most else None


def breakable(path: str) -> Markup:
    """The path of a hole as HTML. A line may break after each dot."""
    return Markup(str(escape(path)).replace(".", ".<wbr>"))


def marked(text: str) -> Markup:
    """A message of the dashboard as HTML: text between backticks becomes code."""
    return Markup(CODE.sub(r"<code>\1</code>", str(escape(text))))
