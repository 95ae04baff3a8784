"""Formats numbers, failures and rows as text that is safe to print.

Names and messages from a database may contain characters that control a terminal.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table  # imported where a table is drawn: commands that print JSON do without it

WIDE = 10_000  # columns of a page on which no line is folded
REASON = 200  # characters of a failure that are shown; the store keeps all of them

# Control characters (C0 without tab and newline, DEL, C1), characters that change the direction or order of text, line
# separators, and lone surrogates, which no terminal can print.
_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


def short(value: float) -> str:
    """A number as short text: 2.413, 38.1M, 0.00031."""
    size = abs(value)
    for factor, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if size >= factor:
            return f"{value / (factor if unit != 'k' else 1e3):.3g}{unit}"
    return f"{value:.4g}"


def duration(seconds: float) -> str:
    """A length of time as text: 40 s, 12 min, 3.5 h, 2.0 days."""
    for factor, unit, digits in ((86_400 * 2, "days", 1), (5400, "h", 1), (90, "min", 0)):
        if seconds >= factor:
            return f"{seconds / {'days': 86_400, 'h': 3600, 'min': 60}[unit]:.{digits}f} {unit}"
    return f"{seconds:.0f} s"


def size(count: float) -> str:
    """A number of bytes as text: 1.2 MiB."""
    units = ("B", "KiB", "MiB", "GiB", "TiB")
    power = min(len(units) - 1, max(0, int(count).bit_length() - 1) // 10)
    return f"{count / 1024**power:.3g} {units[power]}"


def counted(counts: Mapping[str, int]) -> str:
    """Counts as text: 3 complete, 1 failed; or none."""
    found = Counter(counts)
    return ", ".join(f"{found[name]} {name}" for name in counts if found[name]) or "none"


def reason(text: str) -> str:
    """The line of a failure that says what happened: the last one, as in a traceback."""
    lines = [line.strip(" |") for line in text.splitlines() if any(map(str.isalnum, line))]  # | and -: of a group
    last = lines[-1] if lines else "no reason given"
    return last if len(last) <= REASON else last[: REASON - 3] + "..."


def table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Rows as a table: numbers are short and right-aligned, text is unchanged and without markup."""
    from rich.table import Table
    from rich.text import Text

    columns = list(dict.fromkeys(key for row in rows for key in row))
    made = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        numeric = any(isinstance(row.get(column), int | float) for row in rows)
        made.add_column(Text(visible(column)), justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        made.add_row(*(Text(_cell(row.get(column))) for column in columns))
    return made


def rendered(rows: Sequence[Mapping[str, Any]], width: int = WIDE) -> str:
    """The table as text, without a final newline. Only lines longer than `width` are folded."""
    from rich.console import Console

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
    return f"{value:,}" if isinstance(value, int) else visible(str(value))


def visible(text: str) -> str:
    """`text` with every character that controls a terminal written as an escape, such as \\x1b."""
    return _STEERING.sub(_escape, text)


def visible_json(text: str) -> str:
    """The same for JSON, where such characters are inside strings: they are written as \\u001b."""
    return _STEERING.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
