"""Draws a heat map as SVG, with numbers in the cells if they are wide enough."""

from __future__ import annotations

from collections.abc import Iterator

from dashboards.figures.figure import Heat
from dashboards.figures.marks import LETTER, RIGHT, TOP, cut, shades_of
from dashboards.figures.markup import element, escaped, label
from nas.report.tables import short

CELL = 26  # pixels: the height of a row
ROOM = 44  # pixels: a wider cell shows its number
DARK = 4  # the first dark step of the colour scale


def heat_height(heat: Heat) -> int:
    """The height of the picture in pixels."""
    return TOP + CELL * max(1, len(heat.y.categories)) + 60


def heat_parts(heat: Heat, width: int) -> Iterator[str]:
    """The elements of the picture."""
    height = heat_height(heat)
    left = 24 + min(LETTER * max((len(cut(name)) for name in heat.y.categories), default=0), width * 0.4)
    wide = (width - left - RIGHT) / max(1, len(heat.x.categories))
    flat = shades_of([value for row in heat.z for value in row])
    place = 0
    for i, row in enumerate(heat.z):
        yield label(cut(heat.y.categories[i]), left - 7, TOP + CELL * (i + 0.5) + 4, "end")
        for j, value in enumerate(row):
            if value is not None:
                yield from _cell(
                    value, f"{short(value)} {heat.label}", left + j * wide, TOP + i * CELL, wide, flat[place]
                )
            place += 1
    for j, name in enumerate(heat.x.categories):
        yield label(cut(name, max(4, int(wide / LETTER))), left + (j + 0.5) * wide, height - 32)
    yield label(heat.x.label, (left + width) / 2, height - 10)


def _cell(value: float, title: str, left: float, top: float, wide: float, shade: int | None) -> Iterator[str]:
    box = {"x": left + 1, "y": top + 1, "width": max(1.0, wide - 2), "height": CELL - 2}
    yield element("rect", element("title", escaped(title)), kind=f"mark s{shade or 0}", **box)
    if wide > ROOM:
        kind = "on-light" if (shade or 0) < DARK else "on-dark"
        yield label(short(value), left + wide / 2, top + CELL / 2 + 4, kind=kind)
