"""Cells side by side: tables that fit the width of a page, with the rows that differ marked."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from nas.report.tables import visible

MARK = "*"  # in front of a row whose cells are not all equal
GAP = 2  # columns of the page between two cells
LEGIBLE = 16  # columns that a cell gets before another table starts
NARROWEST = 8  # columns of a cell on a page that is narrower than its words
PIECE = re.compile(r"[^\W_]+(?:[^\w\s]|_)*|(?:[^\w\s]|_)+")  # a word may be broken after such a piece
Rows = list[tuple[str, Sequence[Any]]]  # (the name of a row, a cell for each column)
Sections = Sequence[tuple[str, Rows]]  # (a title or "", its rows)


@dataclass(frozen=True)
class Layout:
    """The widths of one table: of the names of its rows, and of each of its columns, which are numbered."""

    columns: tuple[int, ...]
    names: int
    widths: tuple[int, ...]


def print_columns(heads: Sequence[str], sections: Sections, width: int) -> None:
    """Print the columns in as few tables as fit `width`, one below the other; long cells take several lines.

    A row is marked in each table if it differs between any two columns. A table leaves out rows in which its columns
    are all empty.
    """
    layouts = arranged(heads, sections, width)
    print("\n\n".join(_drawn(heads, sections, layout, width) for layout in layouts))


def arranged(heads: Sequence[str], sections: Sections, width: int) -> list[Layout]:
    """The tables for a page of `width`: as few as fit, with as many columns each."""
    cells = [[head, *(str(row[i]) for _, rows in sections for _, row in rows)] for i, head in enumerate(heads)]
    names = [name for title, rows in sections for name in (title, *(name for name, _ in rows))]
    for tables in range(1, len(heads) + 1):
        groups = _groups(len(heads), tables)
        if tables == len(heads) or all(_fits([cells[i] for i in group], names, width) for group in groups):
            break
    return [_layout(group, [cells[i] for i in group], names, width) for group in groups]


def _groups(count: int, tables: int) -> list[range]:
    """The numbers below `count` in `tables` groups whose sizes differ by one at most, the larger ones first."""
    size, larger = divmod(count, tables)
    starts = [i * size + min(i, larger) for i in range(tables + 1)]
    return [range(first, last) for first, last in pairwise(starts)]


def _fits(cells: Sequence[Sequence[str]], names: Sequence[str], width: int) -> bool:
    return sum(map(_legible, cells)) <= _room(width, _longest(names), len(cells))


def _layout(group: range, cells: Sequence[Sequence[str]], names: Sequence[str], width: int) -> Layout:
    widest = _longest(names)
    if len(group) == 1 and not _fits(cells, names, width):  # then the names of the rows take several lines too
        widest = min(widest, max(_longest_piece(names), width // 2 - len(MARK) - GAP))
        widest = max(NARROWEST, min(widest, _room(width, NARROWEST, 1)))
    widths = shared_out(cells, max(_room(width, widest, len(group)), NARROWEST * len(group)))
    return Layout(tuple(group), widest, tuple(widths))


def _room(width: int, names: int, columns: int) -> int:
    """How much of `width` is left for the cells."""
    return width - len(MARK) - names - GAP * (columns + 1)


def _longest(texts: Sequence[str]) -> int:
    return max(map(_width, texts))


def _width(text: str) -> int:
    """How many columns of a terminal `text` takes: an East Asian letter takes two."""
    from rich.cells import cell_len  # not at the top, because most commands print no columns

    return cell_len(text)


def _longest_piece(texts: Sequence[str]) -> int:
    return max(_width(piece) for text in texts for piece in PIECE.findall(text) or [""])


def _legible(cells: Sequence[str]) -> int:
    return max(_longest_piece(cells), min(_longest(cells), LEGIBLE))


def shared_out(columns: Sequence[Sequence[str]], total: int) -> list[int]:
    """Widths of columns with these cells, at most `total` in all: a narrow column keeps its width, the others share the
    rest. A column is as wide as its longest word if all of them can be.
    """
    natural, floors = [_longest(cells) for cells in columns], [_longest_piece(cells) for cells in columns]
    if sum(floors) > total:
        floors = [1] * len(columns)
    widths, left, waiting = list(natural), total, sum(floors)
    for number, i in enumerate(sorted(range(len(natural)), key=natural.__getitem__)):
        waiting -= floors[i]
        share = min(natural[i], left // (len(natural) - number))
        widths[i] = min(max(floors[i], share), left - waiting)
        left -= widths[i]
    return widths


def wrapped(text: str, width: int) -> str:
    """`text` in lines of at most `width`: broken at spaces; longer words after `_`, `=` or `:`, or anywhere."""
    from rich.cells import chop_cells

    lines = [""]
    for word in visible(text).split(" "):
        joined = f"{lines[-1]} {word}" if lines[-1] else word
        if _width(joined) <= width:
            lines[-1] = joined
            continue
        lines += [""] if lines[-1] else []
        for piece in PIECE.findall(word):
            lines += [""] if lines[-1] and _width(lines[-1] + piece) > width else []
            lines[-1] += piece
    return "\n".join(part for line in lines for part in chop_cells(line, width) or [""])


def _drawn(heads: Sequence[str], sections: Sections, layout: Layout, width: int) -> str:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, GAP, 0, 0))
    table.add_column("", width=len(MARK))
    table.add_column("", width=layout.names)
    for i, own in zip(layout.columns, layout.widths, strict=True):
        table.add_column(Text(wrapped(heads[i], own)), width=own)
    for title, rows in sections:
        if title:
            table.add_row()
            table.add_row("", Text(wrapped(title, layout.names), style="bold"))
        for name, cells in rows:
            own_cells = [str(cells[i]) for i in layout.columns]
            if not any(own_cells):
                continue
            differs = len({str(cell) for cell in cells}) > 1
            style = "yellow" if differs else ""
            texts = map(wrapped, own_cells, layout.widths)
            words = (MARK if differs else "", wrapped(name, layout.names), *texts)
            table.add_row(*(Text(word, style=style) for word in words))
    needed = len(MARK) + layout.names + sum(layout.widths) + GAP * (len(layout.widths) + 1)
    console = Console(width=max(width, needed), highlight=False, file=sys.stdout)
    with console.capture() as page:
        console.print(table)
    return "\n".join(line.rstrip() for line in page.get().splitlines())
