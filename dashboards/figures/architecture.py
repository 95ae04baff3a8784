"""Draws the lines of an architecture as nested boxes in the order of the forward pass, shaded by one cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from dashboards.figures.marks import element, label
from nas.report.tables import short, size
from searchspace.lines import Row

LINE, GAP, INDENT, MARGIN, LETTER, BAR = 24, 5, 14, 8, 7.6, 90
HEAD, COLUMN = 20, 88  # pixels: the height of the column names, and the width of a column of numbers
QUANTITIES = {"flops": "FLOPs", "parameters": "Parameters", "state_bytes": "State", "milliseconds": "Time"}
STYLE = (
    "svg.boxes{font:12.5px ui-monospace,Menlo,Consolas,monospace;background:#fff;color:#1c2128}"
    ".boxes text{fill:#1c2128}.boxes .faint{fill:#667080}"
    ".boxes .box{fill:currentColor;stroke:currentColor;fill-opacity:.1}"
    ".boxes .bar{fill:currentColor}.boxes .track{fill:#98a2b3;fill-opacity:.25}"
    ".f-attention{color:#0072b2}.f-convolution{color:#009e73}.f-recurrence{color:#d55e00}.f-feedforward{color:#b8860b}"
    ".f-norm,.f-none{color:#667080}.f-position{color:#aa4499}"
)


MOST_LINES = 1000


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of the tree. count: how many copies follow one another. cost: by name, {} if it is unknown."""

    depth: int
    label: str
    family: str = ""
    count: int = 1
    cost: dict[str, float] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The line without its costs."""
        return f"{'| ' * self.depth}{self.label}{f' x {self.count}' if self.count > 1 else ''}"


def lines_of_rows(rows: Sequence[Row]) -> list[Line]:
    """The lines of a drawing; the last one says if there are more."""
    more = len(rows) - MOST_LINES
    cut = [Line(depth=0, label=f"{more:,} more lines")] if more > 0 else []
    return [_line(row) for row in rows[:MOST_LINES]] + cut


def _line(row: Row) -> Line:
    cost: dict[str, float] = {"flops": row.cost.expected_flops, "parameters": row.cost.parameters}
    cost["state_bytes"] = row.cost.state_bytes
    family = row.family if row.family not in ("combinators", "models", "backbones") else ""
    return Line(depth=row.depth, label=row.label, family=family, count=row.count, cost=cost)


def architecture_svg(lines: Sequence[Line], shade: str = "flops", *, alone: bool = False, title: str = "") -> str:
    """The boxes as an SVG element. shade: the cost that bars and colours show; lines may have no costs."""
    known = [name for name in QUANTITIES if any(name in line.cost for line in lines)]
    places = list(_places(lines, HEAD if known else 0))
    labels = max((INDENT * line.depth + LETTER * (len(_label(line)) + 2) for line in lines), default=100)
    right = MARGIN + labels + INDENT * (max((line.depth for line in lines), default=0) + 1)
    shade = shade if shade in known else (known[0] if known else "")
    width = right + (BAR + 2 * COLUMN + MARGIN + 6 if known else MARGIN)
    height = (max(bottom for _, bottom in places) if places else LINE) + MARGIN
    whole = max((line.cost.get(shade, 0.0) for line in lines), default=0.0) or 1.0
    parts = list(_heads(shade, right)) if known else []
    for line, (top, bottom) in zip(lines, places):
        is_leaf = bottom - top <= LINE  # boxes overlap, so the shades of nested boxes would add up
        parts += _box(line, top, bottom, right, line.cost.get(shade, 0.0) / whole if shade and is_leaf else 0.0)
        if known:
            parts += _numbers(line, top, right, shade, line.cost.get(shade, 0.0) / whole)
    if alone:
        parts.insert(0, f"<style>{STYLE}</style>")
    size = {"xmlns": "http://www.w3.org/2000/svg"} if alone else {}
    box = {"viewBox": f"0 0 {width:.0f} {height:.0f}", "width": width, "role": "img"}
    return element("svg", *parts, kind="boxes", aria_label=title or "The architecture as nested blocks", **size, **box)


def _places(lines: Sequence[Line], head: int) -> Iterator[tuple[float, float]]:
    """The top and the bottom of the box of each line: a box contains the boxes of the deeper lines below it."""
    tops, at = [], float(MARGIN + head)
    open_: list[int] = []
    bottoms = [0.0] * len(lines)
    for i, line in enumerate(lines):
        while open_ and lines[open_[-1]].depth >= line.depth:
            bottoms[open_.pop()] = at
            at += GAP
        tops.append(at)
        at += LINE
        open_.append(i)
    while open_:
        bottoms[open_.pop()] = at
        at += GAP
    return zip(tops, bottoms)


def _box(line: Line, top: float, bottom: float, right: float, share: float) -> Iterator[str]:
    left = MARGIN + INDENT * line.depth
    wide = right - left - INDENT * line.depth * 0.6
    shade = {"style": f"fill-opacity:{0.06 + 0.5 * share:.2f}"} if line.depth and share else {}
    place = {"x": left, "y": top, "width": wide, "height": bottom - top, "rx": 4}
    yield element("rect", kind=f"box f-{line.family or 'none'}", **place, **shade)
    yield label(_label(line), left + 8, top + 16, "start")


def _numbers(line: Line, top: float, right: float, shade: str, share: float) -> Iterator[str]:
    left = right + 6
    place = {"x": left, "y": top + 9, "height": 6, "rx": 3}
    yield element("rect", kind="track", width=BAR, **place)
    if share > 0.004:
        yield element("rect", kind=f"bar f-{line.family or 'none'}", width=BAR * min(share, 1), **place)
    for name, at in _columns(shade, right):
        yield label(_cost_text(name, line.cost), at, top + 16, "end", kind="faint")


def _heads(shade: str, right: float) -> Iterator[str]:
    """The names of the columns of numbers."""
    for name, at in _columns(shade, right):
        yield label(QUANTITIES[name], at, MARGIN + 11, "end", kind="faint")


def _columns(shade: str, right: float) -> list[tuple[str, float]]:
    """The costs that are shown, each with the x coordinate where its numbers end."""
    other = "parameters" if shade != "parameters" else "flops"
    return [(name, right + 6 + BAR + COLUMN * place) for place, name in enumerate((shade, other), 1)]


def _cost_text(name: str, cost: Mapping[str, float]) -> str:
    """A cost as text; empty if it is unknown or zero."""
    value = cost.get(name)
    if not value:
        return ""
    if name == "state_bytes":
        return size(value)
    return f"{value:.3g} ms" if name == "milliseconds" else short(value)


def _label(line: Line) -> str:
    text = line.label if len(line.label) <= 90 else f"{line.label[:88]}…"
    return f"{text} × {line.count}" if line.count > 1 else text
