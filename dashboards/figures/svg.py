"""Draws figures as SVG, without JavaScript. Colours are CSS classes: of the page, or of `STYLE` in a file."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from dashboards.figures.figure import QUIET, Axis, Figure, Heat, Series
from dashboards.figures.heat import heat_height, heat_parts
from dashboards.figures.marks import COLOURS, LETTER, RIGHT, STYLE, TOP, cut, shades_of, shape, tick_text
from dashboards.figures.markup import element, escaped, label
from dashboards.figures.scale import Scale, scale_of

WIDTH, LEFT, BOTTOM = 720, 64, 48
DENSE = 1000  # points of a series; more are one element without names and links: it is drawn ten times faster
SLOPE, LONGEST = 28, 26  # degrees and letters of names below an axis that would overlap if they were horizontal


def svg(figure: Figure | Heat, *, alone: bool = False, width: int = WIDTH) -> str:
    """The figure as an SVG element. alone: include the styles, for a separate file."""
    if isinstance(figure, Heat):
        height, parts = heat_height(figure), list(heat_parts(figure, width))
    else:
        height, parts = figure.height, list(_figure(figure, width, figure.height))
    if alone:
        parts.insert(0, f"<style>{STYLE}</style>")
    space = {"xmlns": "http://www.w3.org/2000/svg"} if alone else {}
    size = {"width": width, "height": height} if alone else {}
    box = {"viewBox": f"0 0 {width} {height}", "role": _role(figure), "aria_label": figure.title}
    return element("svg", *parts, kind="figure", **space, **size, **box)


def _role(figure: Figure | Heat) -> str:
    """The ARIA role: a group if there are links, because assistive technology ignores the parts of an image."""
    has_links = isinstance(figure, Figure) and any(each.links for each in figure.series)
    return "group" if has_links else "img"


def _figure(figure: Figure, width: int, height: int) -> Iterator[str]:
    xs = [value for each in figure.series for value in each.x]
    ys = [value for each in figure.series for value in each.y]
    for each in figure.series:
        ends = [value for value in (*each.low, *each.high) if value is not None]
        (xs if each.mark == "spans" else ys).extend(ends)
        if each.mark == "bars":
            ys.append(0.0)
    legend = [each for each in figure.series if each.name and len(each.x)]
    top = TOP + (_legend_height(legend, width) if len(legend) > 1 else 0)
    left = max(LEFT, 20 + min(LETTER * max((len(cut(name)) for name in figure.y.categories), default=0), width * 0.42))
    x = scale_of(figure.x, xs, left, width - RIGHT)
    bottom = height - BOTTOM - _slope(figure.x, x)
    y = scale_of(figure.y, ys, *((top, bottom) if figure.y.categories else (bottom, top)))
    yield from _axes(figure, x, y, width, height)
    if len(legend) > 1:
        yield from _legend(legend, width)
    shades = shades_of([value for each in figure.series for value in each.shade])  # one scale for all
    for series in figure.series:
        yield from _series(series, x, y, shades[: len(series.shade)])
        shades = shades[len(series.shade) :]


def _axes(figure: Figure, x: Scale, y: Scale, width: int, height: int) -> Iterator[str]:
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
    yield label(figure.x.label, max(half, min((x.start + x.end) / 2, width - half)), height - 8)
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
        return [(place, cut(name)) for place, name in enumerate(axis.categories)]
    return [(tick, tick_text(tick)) for tick in scale.ticks(most)]


def _legend_places(legend: Sequence[Series], width: int) -> list[tuple[float, float]]:
    places, at, row = [], float(LEFT), 0
    for each in legend:
        need = 30 + LETTER * len(cut(each.name))
        if at + need > width and at > LEFT:
            at, row = float(LEFT), row + 1
        places.append((at, 12.0 + 18 * row))
        at += need
    return places


def _legend_height(legend: Sequence[Series], width: int) -> float:
    return _legend_places(legend, width)[-1][1] + 8


def _legend(legend: Sequence[Series], width: int) -> Iterator[str]:
    for each, (left, top) in zip(legend, _legend_places(legend, width)):
        if each.mark in ("line", "steps"):
            yield _line(each, f"M{left:.1f} {top - 4:.1f}h16")
        else:
            yield element("path", kind=f"mark {_colour(each)}", d=shape(each.symbol, left + 8, top - 4, 5))
        yield label(cut(each.name), left + 21, top, "start")


def _line(series: Series, path: str) -> str:
    dash = {"stroke_dasharray": "5 4"} if series.dashed else {}
    return element("path", kind=f"line {_colour(series)}", d=path, **dash)


def _colour(series: Series) -> str:
    return "quiet" if series.colour == QUIET else f"c{series.colour % len(COLOURS)}"


def _series(series: Series, x: Scale, y: Scale, shades: Sequence[int | None]) -> Iterator[str]:
    places = [
        None if a is None or b is None or not _drawn(x, a) or not _drawn(y, b) else (x(a), y(b))
        for a, b in zip(series.x, series.y)
    ]
    if series.mark in ("line", "steps") and len(places) > 1:  # one point makes no line
        yield from _band(series, x, y)
        if path := _path(places, series.mark == "steps"):
            yield _line(series, path)
        return
    if series.low:
        yield from _whiskers(series, x, y)
    colours = [_colour(series) if shade is None else f"s{shade}" for shade in shades or [None] * len(places)]
    if len(places) > DENSE and series.mark != "bars":
        yield from _clouds(series, places, colours)
        return
    for i, place in enumerate(places):
        if place is not None:
            yield _mark(series, i, place, x, y, colours[i])


def _clouds(series: Series, places: Sequence[tuple[float, float] | None], colours: Sequence[str]) -> Iterator[str]:
    """One element for all points of a colour. A dot is a line of length zero with round ends."""
    r = series.size / 2
    found: dict[str, list[str]] = {}
    for place, colour in zip(places, colours):
        if place is not None:
            mark = f"M{place[0]:.1f} {place[1]:.1f}h0" if series.symbol == "circle" else shape(series.symbol, *place, r)
            found.setdefault(colour, []).append(mark)
    wide = series.size + 1  # a mark has an outline of 1
    ends: dict[str, str | float] = {"stroke_width": wide, "stroke_linecap": "round"}
    for colour, marks in found.items():
        look = {"kind": f"whisker {colour}", **ends} if series.symbol == "circle" else {"kind": f"mark {colour}"}
        yield element("path", d="".join(marks), **look)


def _mark(series: Series, i: int, place: tuple[float, float], x: Scale, y: Scale, colour: str) -> str:
    title = [element("title", escaped(series.text[i]))] if series.text else []
    if series.mark == "bars":
        base = y(max(0.0, y.low))
        wide = 8.0 if x.log else max(4.0, min(40.0, abs(x(1) - x(0)) * 0.6))
        box = {"x": place[0] - wide / 2, "y": min(base, place[1]), "width": wide, "height": abs(base - place[1])}
        drawn = element("rect", *title, kind=f"mark {colour}", **box)
    else:
        drawn = element("path", *title, kind=f"mark {colour}", d=shape(series.symbol, *place, series.size / 2))
    return element("a", drawn, href=series.links[i], tabindex="-1") if series.links else drawn


def _drawn(scale: Scale, value: float) -> bool:
    return math.isfinite(value) and (value > 0 or not scale.log) and scale.shows(value)


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
        if at is not None and low is not None and high is not None and _drawn(x, at)
    ]
    if len(known) > 1:
        there = "L".join(f"{at:.1f} {low:.1f}" for at, low, _ in known)
        back = "L".join(f"{at:.1f} {high:.1f}" for at, _, high in reversed(known))
        yield element("path", kind=f"band {_colour(series)}", d=f"M{there}L{back}Z")


def _whiskers(series: Series, x: Scale, y: Scale) -> Iterator[str]:
    for at, height, low, high in zip(series.x, series.y, series.low, series.high):
        if at is None or height is None or low is None or high is None:
            continue
        if series.mark == "spans":
            ends = f"M{x(low):.1f} {y(height):.1f}H{x(high):.1f}"
        else:
            ends = f"M{x(at):.1f} {y(low):.1f}V{y(high):.1f}"
        yield element("path", kind=f"whisker {_colour(series)}", stroke_width="2", d=ends)
