"""The lines of an architecture: drawn in columns, as plain data for a database, or next to those of others.

It needs no torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from operator import attrgetter
from typing import Any

from searchspace.cost import ADDED, LABELS, Cost

KEPT = tuple(name for name in ADDED if name != "choosing_flops")
_numbers = attrgetter(*KEPT)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the tree.

    depth: its indentation. family: the kind of its block, such as attention; empty if the line is not a block.
    output: batch, length and width. count: how many copies follow one another, or how many calls if `shared`.
    """

    depth: int
    label: str
    family: str
    output: tuple[int, int, int]
    cost: Cost
    flops_share: float
    count: int = 1
    shared: bool = False

    @property
    def text(self) -> str:
        """The label with its indentation and count."""
        times = f" {'shared ' if self.shared else ''}x {self.count}" if self.count > 1 else ""
        return "  " * self.depth + self.label + times


def text(rows: Iterable[Row]) -> str:
    """The rows in columns; the first line names the columns."""
    lines = [("block", "output", LABELS["parameters"], LABELS["flops"], LABELS["state_bytes"])]
    for row in rows:
        flops = f"{row.flops_share:.1%}" if row.depth else human(row.cost.expected_flops)
        output = " x ".join(map(str, row.output))
        lines.append((row.text, output, human(row.cost.parameters), flops, human_bytes(row.cost.state_bytes)))
    widths = [max(len(line[i]) for line in lines) for i in range(5)]
    return "\n".join(
        "  ".join([line[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:]))])
        for line in lines
    )


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """Lines for an input of `length` positions. halting: at which depth halting blocks count, "" if there are none."""

    length: int
    rows: Sequence[Row] = field(repr=False)
    halting: str = ""

    @property
    def cost(self) -> Cost:
        """Of the whole model."""
        return self.rows[0].cost

    def text(self) -> str:
        """The lines in columns."""
        return text(self.rows)

    def to_plain(self) -> dict[str, Any]:
        """Plain data for a database, which `kept` reads."""
        return {"length": self.length, "lines": _to_plain(self.rows)}


def kept(data: Mapping[str, Any] | None) -> Drawing | None:
    """The drawing in what `to_plain` gave; None if there is none, or it is of another version."""
    try:
        rows = _from_plain(data["lines"]) if data else []
        return Drawing(length=data["length"], rows=rows) if data and rows else None
    except (ValueError, TypeError, LookupError):
        return None


def _to_plain(rows: Iterable[Row]) -> list[list[Any]]:
    return [
        [
            row.depth,
            row.label,
            row.family,
            row.output,
            row.count,
            row.shared,
            [getattr(row.cost, name) for name in KEPT],
        ]
        for row in rows
    ]


def _from_plain(data: Sequence[Sequence[Any]]) -> list[Row]:
    rows: list[Row] = []
    for depth, label, family, output, count, shared, numbers in data:
        cost = Cost(**dict(zip(KEPT, numbers, strict=True)))
        whole = rows[0].cost.expected_flops if rows else cost.expected_flops
        rows.append(
            Row(
                depth=depth,
                label=label,
                family=family,
                output=tuple(output),
                cost=cost,
                flops_share=cost.expected_flops / whole if whole else 0.0,
                count=count,
                shared=shared,
            )
        )
    return rows


def human(number: int) -> str:
    """A number with three digits and a unit: 1234567 -> '1.23M'."""
    units = ("", "k", "M", "G", "T", "P")
    value, unit = float(number), 0
    while value >= 999.5 and unit < len(units) - 1:
        value, unit = value / 1000, unit + 1
    return f"{value:.3g}{units[unit]}"


def human_bytes(number: int) -> str:
    """Bytes with four digits and a unit: 2048 -> '2KiB'."""
    units = ("B", "KiB", "MiB", "GiB", "TiB")
    value, unit = float(number), 0
    while value >= 1024 and unit < len(units) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.4g}{units[unit]}"


@dataclass(frozen=True)
class AlignedLayer:
    """One line of a comparison. place: `width`, `body[3]`, ...; texts: one for each architecture, "" if it has none."""

    place: str
    texts: tuple[str, ...]

    @property
    def differs(self) -> bool:
        """Whether the architectures are not all equal here."""
        return len(set(self.texts)) > 1


def merged(place: str, lists: Sequence[Sequence[str]]) -> list[AlignedLayer]:
    """`lists` of texts merged into one after another; index `i` of `place[i]` counts the merged lines."""
    rows: list[tuple[str, ...]] = [(text,) for text in lists[0]]
    for number, texts in enumerate(lists[1:], start=1):
        rows = _with_one_more(rows, texts, number)
    return [AlignedLayer(f"{place}[{i}]", texts) for i, texts in enumerate(rows)]


def _with_one_more(rows: list[tuple[str, ...]], texts: Sequence[str], width: int) -> list[tuple[str, ...]]:
    """`rows` of `width` columns with `texts` as one more column."""
    known = [next((text for text in row if text), "") for row in rows]
    done: list[tuple[str, ...]] = []
    for _, i, i_end, j, j_end in SequenceMatcher(None, known, texts, autojunk=False).get_opcodes():
        for k in range(max(i_end - i, j_end - j)):
            row = rows[i + k] if i + k < i_end else ("",) * width
            done.append((*row, texts[j + k] if j + k < j_end else ""))
    return done
