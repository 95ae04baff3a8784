"""An architecture as an SVG picture: nested boxes in the order of the forward pass, from top to bottom.

Each box contains the boxes of its parts. Each line shows its output shape, its parameters, its share of the FLOPs as a
bar, and its streaming state. The costs of a line are those of all its copies.

SVG renderers disagree about which spaces they keep. Some ignore `xml:space="preserve"`, and librsvg removes no-break
spaces at the start of a `tspan` without it. So labels use both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from searchspace.cost import LABELS, Shape
from searchspace.lines import Row, human, human_bytes
from searchspace.model.architecture import Architecture
from searchspace.model.drawing import rows

# Colours of boxes by the family of the block; readable on white and on black.
COLOURS = {
    "attention": "#4e79d6",
    "convolution": "#2f9e8f",
    "recurrence": "#a0642f",
    "feedforward": "#c9862b",
    "norm": "#8a8f98",
    "position": "#9a63b8",
    "combinators": "#8a8f98",
    "models": "#8a8f98",
    "": "#8a8f98",
}
STYLE = """
  svg { background: #fff; font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace }
  text { fill: #1c2128 } .quiet { fill: #667080 }
  .box { fill-opacity: .13; stroke-opacity: .8 } .around { fill-opacity: .04 }
  .track { fill: #667080; fill-opacity: .18 }
  @media (prefers-color-scheme: dark) {
    svg { background: #14171c } text { fill: #e3e7ed } .quiet { fill: #98a2b3 }
  }
"""
LINE, GAP, INDENT, MARGIN = 24, 5, 14, 16  # pixels: height of a line, gap between boxes, indentation, outer margin
LETTER = 7.9  # width of one letter, at a font size of 13 pixels
BAR = 70
SPACE = "\N{NO-BREAK SPACE}"


@dataclass(frozen=True)
class _Placed:
    """A row with its box, which reaches from `top` to `bottom` and contains the boxes of its parts."""

    row: Row
    top: float
    bottom: float


def svg(architecture: Architecture, shape: Shape | None = None, title: str = "") -> str:
    """The text of an SVG file for an input of `shape`, with `title` above the picture.

    Raises SpaceError if values of the architecture do not fit together.
    """
    lines = list(rows(architecture, shape))
    placed = _placed(lines)
    left = max(INDENT * row.depth + LETTER * (len(_label(row)) + 2) for row in lines)
    right = MARGIN + left + INDENT * (max(row.depth for row in lines) + 1)
    columns = _columns(lines, right)
    width, height = columns[-1] + MARGIN, placed[0].bottom + MARGIN
    boxes = [part for each in placed for part in _box(each, right)]
    numbers = [part for each in placed for part in _numbers(each, columns)]
    named = title or architecture.short
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
            f'viewBox="0 0 {width:.0f} {height:.0f}" xml:space="preserve" role="img" aria-label="{escape(named)}">',
            f"<title>{escape(named)}</title>",
            f"<style>{STYLE}</style>",
            *_header(columns, named),
            *boxes,
            *numbers,
            "</svg>\n",
        ]
    )


def _text(text: str) -> str:
    """`text` escaped for SVG, with spaces that every renderer keeps."""
    return escape(text).replace(" ", SPACE)


def _label(row: Row) -> str:
    return row.text.strip()


def _placed(lines: Sequence[Row]) -> list[_Placed]:
    """Places the rows below one another. A box ends one gap below the last box in it."""
    tops: list[float] = []
    bottoms = [0.0] * len(lines)
    open_boxes: list[int] = []
    y = MARGIN + 2.0 * LINE
    for index, row in enumerate([*lines, None]):
        while open_boxes and (row is None or lines[open_boxes[-1]].depth >= row.depth):
            bottoms[open_boxes.pop()] = y
            y += GAP
        if row is not None:
            tops.append(y)
            open_boxes.append(index)
            y += LINE
    return [_Placed(row, top, bottom) for row, top, bottom in zip(lines, tops, bottoms, strict=True)]


def _columns(lines: Sequence[Row], left: float) -> list[float]:
    """The right ends of the columns in pixels: output, parameters, FLOPs (bar and number), state."""
    texts = [_cells(row) for row in lines]
    widths = [LETTER * max(len(name), *(len(text[i]) for text in texts)) for i, name in enumerate(HEADER)]
    widths[2] += BAR + LETTER
    ends, x = [], left
    for width in widths:
        x += width + 2 * LETTER
        ends.append(x)
    return ends


HEADER = ("output", LABELS["parameters"], LABELS["flops"], LABELS["state_bytes"])


def _cells(row: Row) -> tuple[str, str, str, str]:
    flops = f"{row.flops_share:.1%}" if row.depth else human(row.cost.expected_flops)
    state = human_bytes(row.cost.state_bytes) if row.cost.state_bytes else ""
    return " x ".join(map(str, row.output)), human(row.cost.parameters), flops, state


def _header(columns: list[float], title: str) -> Iterator[str]:
    yield f'<text x="{MARGIN}" y="{MARGIN + LINE - 8}" font-weight="600">{_text(title)}</text>'
    for x, name in zip(columns, HEADER, strict=True):
        yield f'<text class="quiet" x="{x:.1f}" y="{MARGIN + LINE - 8}" text-anchor="end">{_text(name)}</text>'


def _box(placed: _Placed, right: float) -> Iterator[str]:
    row, x = placed.row, MARGIN + INDENT * placed.row.depth
    colour = COLOURS.get(row.family, COLOURS[""])
    width, height = right - INDENT * row.depth - x, placed.bottom - placed.top
    around = " around" if row.family in ("combinators", "models") else ""
    dashes = ' stroke-dasharray="5 3"' if row.shared else ""
    yield (
        f'<rect class="box{around}" x="{x}" y="{placed.top:.1f}" width="{width:.1f}" height="{height:.1f}" rx="5" '
        f'fill="{colour}" stroke="{colour}"{dashes}/>'
    )
    name, _, settings = _label(row).partition(" ")
    if name.endswith(":"):
        second, _, settings = settings.partition(" ")
        name = f"{name} {second}"
    quiet = f'<tspan class="quiet">{_text(" " + settings)}</tspan>' if settings else ""
    yield f'<text x="{x + 8}" y="{placed.top + LINE - 8:.1f}">{_text(name)}{quiet}</text>'


def _numbers(placed: _Placed, columns: list[float]) -> Iterator[str]:
    row, y = placed.row, placed.top + LINE - 8
    for x, text in zip(columns, _cells(row), strict=True):
        if text:
            yield f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="end">{_text(text)}</text>'
    if row.depth and row.flops_share:
        left = columns[1] + 2 * LETTER
        colour = COLOURS.get(row.family, COLOURS[""])
        yield f'<rect class="track" x="{left:.1f}" y="{y - 8:.1f}" width="{BAR}" height="8" rx="2"/>'
        full = BAR * row.flops_share
        yield f'<rect x="{left:.1f}" y="{y - 8:.1f}" width="{full:.1f}" height="8" rx="2" fill="{colour}"/>'
