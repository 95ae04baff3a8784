"""Draws figures as SVG: for pages, where static/figures.js adds zoom and labels, and for reports and separate files.

Colours are CSS classes: of the page, or of `STYLE` in a file.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from dashboards.figures.figure import QUIET, Axis, Figure, Heat, Series
from dashboards.figures.marks import (
    COLOURS,
    LETTER,
    RIGHT,
    SCALE,
    STYLE,
    TOP,
    Scale,
    cut,
    element,
    escaped,
    label,
    scale_of,
    shades_of,
    shape,
    tick_text,
)
from nas.report.tables import short

WIDTH, LEFT, BOTTOM = 720, 64, 48
SLOPE, LONGEST = 28, 26  # degrees and letters of names below an axis that would overlap if they were horizontal
CELL, ROOM = 26, 44  # pixels: the height of a row of a heat map; a wider cell shows its number
DARK = 4  # the first dark step of the colour scale


def svg(figure: Figure | Heat, *, alone: bool = False, width: int = WIDTH) -> str:
    """The figure as an SVG element. alone: include the styles, for a separate file."""
    places: dict[str, str] = {}
    if isinstance(figure, Heat):
        height, parts = TOP + CELL * max(1, len(figure.y.categories)) + 78, list(_heat(figure, width))
    else:
        x, y, top = _scales(figure, width)
        height, parts = figure.height, list(_figure(figure, x, y, top, width))
        places = {"data_x": _written(x), "data_y": _written(y)}
    if alone:
        parts.insert(0, f"<style>{STYLE}</style>")
    space = {"xmlns": "http://www.w3.org/2000/svg"} if alone else {}
    size = {"width": width, "height": height} if alone else places
    box = {"viewBox": f"0 0 {width} {height}", "role": _role(figure), "aria_label": figure.title}
    return element("svg", *parts, kind="figure", **space, **size, **box)


def _role(figure: Figure | Heat) -> str:
    """The ARIA role: a group if there are links, because assistive technology ignores the parts of an image."""
    has_links = isinstance(figure, Figure) and any(each.links for each in figure.series)
    return "group" if has_links else "img"


def _written(scale: Scale) -> str:
    """The scale for the script of the page, which turns pixels into values."""
    return " ".join(f"{each:.7g}" for each in (scale.low, scale.high, scale.start, scale.end)) + " log" * scale.log


def _scales(figure: Figure, width: int) -> tuple[Scale, Scale, float]:
    """The scales of x and y, and the upper end of the axes."""
    xs = [value for each in figure.series for value in each.x]
    ys = [value for each in figure.series for value in each.y]
    for each in figure.series:
        ends = [value for value in (*each.low, *each.high) if value is not None]
        (xs if each.mark == "spans" else ys).extend(ends)
    top = TOP + sum(_heights(figure, width))
    left = max(LEFT, 20 + min(LETTER * max((len(cut(name)) for name in figure.y.categories), default=0), width * 0.42))
    x = scale_of(figure.x, xs, left, width - RIGHT)
    bottom = figure.height - BOTTOM - _slope(figure.x, x)
    y = scale_of(figure.y, ys, *((top, bottom) if figure.y.categories else (bottom, top)))
    return x, y, top


def _figure(figure: Figure, x: Scale, y: Scale, top: float, width: int) -> Iterator[str]:
    bottom = max(y.start, y.end)
    yield from _axes(figure, x, y, width)
    yield from _legend(figure, width)
    shades = shades_of([value for each in figure.series for value in each.shade])  # one scale for all
    drawn: list[str] = []
    for series in figure.series:
        drawn += _series(series, x, y, shades[: len(series.shade)])
        shades = shades[len(series.shade) :]
    if not (figure.x.bounds or figure.y.bounds):
        yield from drawn
        return
    wide, high = x.end - x.start, bottom - top  # an inner picture cuts off what is outside the visible part
    yield element(
        "svg", *drawn, x=x.start, y=top, width=wide, height=high, viewBox=f"{x.start} {top} {wide:.1f} {high:.1f}"
    )


def _axes(figure: Figure, x: Scale, y: Scale, width: int) -> Iterator[str]:
    down, up = max(y.start, y.end), min(y.start, y.end)
    for tick, text in _ticks(figure.x, x, 8):
        yield element("path", kind="grid", d=f"M{x(tick):.1f} {up:.1f}V{down:.1f}")
        if _slope(figure.x, x):
            turned = f"translate({x(tick):.1f} {down + 12:.1f}) rotate(-{SLOPE})"
            yield element("text", escaped(cut(text, LONGEST)), transform=turned, text_anchor="end")
        else:
            yield label(text, x(tick), down + 17)
    for tick, text in _ticks(figure.y, y, 7):
        yield element("path", kind="grid", d=f"M{x.start:.1f} {y(tick):.1f}H{x.end:.1f}")
        yield label(text, x.start - 7, y(tick) + 4, "end")
    yield element("path", kind="axis", fill="none", d=f"M{x.start:.1f} {up:.1f}V{down:.1f}H{x.end:.1f}")
    half = LETTER * len(figure.x.label) / 2  # a long name stays inside the picture
    yield label(figure.x.label, max(half, min((x.start + x.end) / 2, width - half)), figure.height - 8)
    if not figure.y.categories:
        turned = f"translate(14 {(up + down) / 2:.1f}) rotate(-90)"
        yield element("text", escaped(figure.y.label), transform=turned, text_anchor="middle")


def _slope(axis: Axis, scale: Scale) -> float:
    """The extra height in pixels for the names below the axis: names that are too long are turned. 0 if none is."""
    longest = LETTER * max((len(cut(name, LONGEST)) for name in axis.categories), default=0)
    room = abs(scale(1) - scale(0)) if len(axis.categories) > 1 else longest
    return longest * math.sin(math.radians(SLOPE)) if longest > room else 0.0


def _ticks(axis: Axis, scale: Scale, most: int) -> list[tuple[float, str]]:
    if axis.categories:
        return [(place, cut(name)) for place, name in enumerate(axis.categories) if scale.shows(place)]
    return [(tick, tick_text(tick)) for tick in scale.ticks(most)]


def _named(figure: Figure) -> list[Series]:
    """The series in the legend: none if there is only one."""
    found = [each for each in figure.series if each.name and len(each.x)]
    return found if len(found) > 1 else []


def _legend_places(legend: Sequence[Series], width: int) -> list[tuple[float, float]]:
    places, at, row = [], float(LEFT), 0
    for each in legend:
        need = 30 + LETTER * len(cut(each.name))
        if at + need > width and at > LEFT:
            at, row = float(LEFT), row + 1
        places.append((at, 12.0 + 18 * row))
        at += need
    return places


def _heights(figure: Figure, width: int) -> tuple[float, float]:
    """The heights of the legend of the series, and of the legend of the colours."""
    places = _legend_places(_named(figure), width)
    return (places[-1][1] + 8 if places else 0), (18 if any(each.shade for each in figure.series) else 0)


def _legend(figure: Figure, width: int) -> Iterator[str]:
    legend = _named(figure)
    for each, (left, top) in zip(legend, _legend_places(legend, width)):
        if each.mark in ("line", "steps"):
            yield _line(each, f"M{left:.1f} {top - 4:.1f}h16")
        else:
            yield element("path", kind=_colour(each), fill="currentColor", d=shape(each.symbol, left + 8, top - 4, 5))
        yield label(cut(each.name), left + 21, top, "start")
    shaded = [each for each in figure.series if each.shade]
    if shaded:
        known = [value for each in shaded for value in each.shade if value is not None]
        yield from _colours(shaded[0].shade_label, known, LEFT, _heights(figure, width)[0] + 3)


def _colours(name: str, values: Sequence[float], left: float, top: float) -> Iterator[str]:
    """The colour scale with its ends."""
    if not values:
        return
    low, high = f"{name} {short(min(values))}", short(max(values))
    start = left + LETTER * len(low) + 4
    yield label(low, left, top + 10, "start")
    for step in range(len(SCALE)):
        yield element("rect", kind=f"s{step}", fill="currentColor", x=start + 12 * step, y=top, width=12, height=12)
    yield label(high, start + 12 * len(SCALE) + 6, top + 10, "start")


def _line(series: Series, path: str) -> str:
    dash = {"stroke_dasharray": "5 4"} if series.dashed else {}
    return element("path", kind=f"line {_colour(series)}", d=path, **dash)


def _colour(series: Series) -> str:
    return "quiet" if series.colour == QUIET else f"c{series.colour % len(COLOURS)}"


def _series(series: Series, x: Scale, y: Scale, shades: Sequence[int | None]) -> Iterator[str]:
    places = [
        None if a is None or b is None or not x.has(a) or not y.has(b) else (x(a), y(b))
        for a, b in zip(series.x, series.y)
    ]
    if series.mark in ("line", "steps") and len(places) > 1:  # one point makes no line
        yield from _band(series, x, y)
        if path := _path(places, series.mark == "steps"):
            yield _line(series, path)
        return
    if series.low:
        yield from _whiskers(series, x, y)
    for i, place in enumerate(places):
        if place is not None:
            shade = shades[i] if shades else None
            yield _mark(series, i, place, _colour(series) if shade is None else f"s{shade}")


def _mark(series: Series, i: int, place: tuple[float, float], colour: str) -> str:
    title = [element("title", escaped(series.text[i]))] if series.text else []
    r = series.size / 2 + 0.5
    if series.symbol == "circle":
        drawn = element("circle", *title, kind=f"mark {colour}", cx=place[0], cy=place[1], r=r)
    else:
        drawn = element("path", *title, kind=f"mark {colour}", d=shape(series.symbol, *place, r))
    return element("a", drawn, href=series.links[i], tabindex="-1") if series.links else drawn


def _path(places: Sequence[tuple[float, float] | None], steps: bool) -> str:
    parts: list[str] = []
    before = None
    for place in places:
        if place is not None:
            if before is None:
                parts.append(f"M{place[0]:.1f} {place[1]:.1f}")
            else:
                parts.append(f"H{place[0]:.1f}V{place[1]:.1f}" if steps else f"L{place[0]:.1f} {place[1]:.1f}")
        before = place
    return "".join(parts)


def _band(series: Series, x: Scale, y: Scale) -> Iterator[str]:
    known = [
        (x(at), y(max(low, y.low)), y(min(high, y.high)))
        for at, low, high in zip(series.x, series.low, series.high)
        if at is not None and low is not None and high is not None and x.has(at)
    ]
    if len(known) > 1:
        there = "L".join(f"{at:.1f} {low:.1f}" for at, low, _ in known)
        back = "L".join(f"{at:.1f} {high:.1f}" for at, _, high in reversed(known))
        yield element("path", kind=f"band {_colour(series)}", d=f"M{there}L{back}Z")


def _whiskers(series: Series, x: Scale, y: Scale) -> Iterator[str]:
    for at, height, low, high in zip(series.x, series.y, series.low, series.high):
        if at is None or height is None or low is None or high is None or not x.has(at) or not y.has(height):
            continue
        if series.mark == "spans":
            ends = f"M{x(max(low, x.low)):.1f} {y(height):.1f}H{x(min(high, x.high)):.1f}"
        else:
            ends = f"M{x(at):.1f} {y(max(low, y.low)):.1f}V{y(min(high, y.high)):.1f}"
        yield element("path", kind=f"whisker {_colour(series)}", stroke_width="2", d=ends)


def _heat(heat: Heat, width: int) -> Iterator[str]:
    top = TOP + 18
    height = top + CELL * len(heat.y.categories)
    left = 24 + min(LETTER * max((len(cut(name)) for name in heat.y.categories), default=0), width * 0.4)
    wide = (width - left - RIGHT) / max(1, len(heat.x.categories))
    values = [value for row in heat.z for value in row]
    yield from _colours(heat.label, [value for value in values if value is not None], left, 3)
    shades = iter(shades_of(values))
    for i, row in enumerate(heat.z):
        yield label(cut(heat.y.categories[i]), left - 7, top + CELL * (i + 0.5) + 4, "end")
        for j, value in enumerate(row):
            shade = next(shades)
            if value is not None:
                yield from _cell(
                    value, f"{short(value)} {heat.label}", left + j * wide, top + i * CELL, wide, shade or 0
                )
    for j, name in enumerate(heat.x.categories):
        yield label(cut(name, max(4, int(wide / LETTER))), left + (j + 0.5) * wide, height + 18)
    yield label(heat.x.label, (left + width) / 2, height + 40)


def _cell(value: float, title: str, left: float, top: float, wide: float, shade: int) -> Iterator[str]:
    box = {"x": left + 1, "y": top + 1, "width": max(1.0, wide - 2), "height": CELL - 2}
    yield element("rect", element("title", escaped(title)), kind=f"mark s{shade}", **box)
    if wide > ROOM:
        yield label(short(value), left + wide / 2, top + CELL / 2 + 4, kind="on-light" if shade < DARK else "on-dark")
