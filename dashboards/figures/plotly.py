"""Figures as Plotly traces. A colour is the name of a custom property in the stylesheet; the page looks it up."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dashboards.figures.figure import QUIET, Axis, Figure, Heat, Series
from dashboards.figures.marks import COLOURS, cut

SYMBOLS = {"triangle": "triangle-up", "cross": "x-thin"}
MANY = 300  # points of a series; the page draws more of them as one element (static/clouds.js)


def plotly(figure: Figure | Heat) -> dict[str, Any]:
    """{data, layout} for `Plotly.react`; for a `Figure` also its `brush` and `thinned`."""
    if isinstance(figure, Heat):
        return {"data": [_heat(figure)], "layout": _layout(figure.x, figure.y, 120 + 28 * len(figure.y.categories))}
    data = [trace for series in figure.series for trace in _traces(series)]
    _share_scale([trace["marker"] for trace in data if "colorbar" in trace.get("marker", {})])
    layout = _layout(figure.x, figure.y, figure.height)
    for name, axis, values in (("xaxis", figure.x, "x"), ("yaxis", figure.y, "y")):
        if axis.log:  # else most tick labels are a single digit, far from the power of ten that they belong to
            layout[name] |= _decades([each for some in figure.series for each in getattr(some, values)], axis.bounds)
    named = sum(bool(each.name and len(each.x)) for each in figure.series)
    layout["showlegend"] = named > (
        0 if figure.thinned else 1
    )  # a zoom may leave one series, and must not move the figure
    return {"data": data, "layout": layout, "brush": figure.brush, "thinned": figure.thinned}


def _share_scale(markers: Sequence[dict[str, Any]]) -> None:
    """Give all series the same colour scale, and one colour bar."""
    known = [value for each in markers for value in each["color"] if value is not None]
    ends = {"cmin": min(known, default=0.0), "cmax": max(known, default=1.0)}
    for place, each in enumerate(markers):
        each |= ends | {"showscale": place == 0}


def _layout(x: Axis, y: Axis, height: int) -> dict[str, Any]:
    across, down = _axis(x), _axis(y)
    if x.categories:  # room for the first and the last name
        names = [cut(each, 22) for each in x.categories]
        across |= {"range": [-0.5, len(names) - 0.5], "ticktext": [_plain(each) for each in names]}
        # Plotly would turn long names to the right and omit the last one, for lack of room.
        if sum(map(len, names)) > 60:
            across |= {"tickangle": -45, "ticklabeloverflow": "allow"}
    if y.categories:
        down |= {"autorange": "reversed", "automargin": True}
    return {"xaxis": across, "yaxis": down, "height": height}


def _axis(axis: Axis) -> dict[str, Any]:
    made: dict[str, Any] = {"title": {"text": _plain(axis.label)}, "type": "log" if axis.log else "linear"}
    if axis.bounds and (not axis.log or axis.bounds[0] > 0):
        made["range"] = [math.log10(each) if axis.log else each for each in axis.bounds]
    if axis.categories:
        made |= {
            "tickvals": list(range(len(axis.categories))),
            "ticktext": [_plain(cut(name)) for name in axis.categories],
        }
        made["title"] = {"text": ""} if len(axis.categories) > 1 else made["title"]
    return made


def _decades(values: Sequence[float | None], bounds: tuple[float, float] | None) -> dict[str, Any]:
    """The ticks of a logarithmic axis: at 1, 2 and 5 of each decade if the values span a factor of 5 to 1000.

    Also for a single value, because Plotly shows two decades around it.
    """
    known = bounds or [each for each in values if each and each > 0] or (1.0,)
    low, high = min(known), max(known)
    form = {"tickformat": "~s" if high >= 1e4 else "~g"}
    return form | ({"dtick": "D2"} if low > 0 and (low == high or 5 <= high / low <= 1000) else {})


def _traces(series: Series) -> list[dict[str, Any]]:
    colour = "--quiet" if series.colour == QUIET else f"--c{series.colour % len(COLOURS)}"
    trace: dict[str, Any] = {
        "type": "bar" if series.mark == "bars" else "scatter",
        "name": _plain(series.name),
        "x": list(series.x),
        "y": list(series.y),
        "hovertext": [_plain(each) for each in series.text],
        "customdata": list(series.links),
        "showlegend": bool(series.name),
    }
    if series.mark in ("line", "steps") and len(series.x) > 1:  # one point makes no line
        shape = {"color": colour, "width": 2, "dash": "dash" if series.dashed else "solid"}
        trace |= {"mode": "lines", "line": shape | {"shape": "hv" if series.mark == "steps" else "linear"}}
        return [*_band(series, colour), trace]
    marker: dict[str, Any] = {"color": colour, "size": series.size, "symbol": SYMBOLS.get(series.symbol, series.symbol)}
    if series.symbol == "cross":
        marker["line"] = {"width": 2, "color": colour}
    if len(series.x) > MANY and series.symbol in ("circle", "triangle"):
        marker["maxdisplayed"] = 1
    if series.shade:
        bar = {"title": {"text": _plain(series.shade_label), "side": "right"}, "thickness": 12}
        marker |= {"color": list(series.shade), "colorscale": "Viridis", "reversescale": True}
        marker["colorbar"] = bar
    trace |= {"mode": "markers", "marker": marker}
    if series.mark == "bars":
        trace["marker"] = {"color": colour}
        del trace["mode"]
    if series.low:
        own = series.x if series.mark == "spans" else series.y
        pairs = list(zip(own, series.low, series.high))
        trace["error_x" if series.mark == "spans" else "error_y"] = {
            "type": "data",
            "symmetric": False,
            "array": [None if at is None or high is None else high - at for at, _, high in pairs],
            "arrayminus": [None if at is None or low is None else at - low for at, low, _ in pairs],
            "color": colour,
        }
    return [trace]


def _band(series: Series, colour: str) -> list[dict[str, Any]]:
    if not series.low:
        return []
    edge: dict[str, Any] = {"type": "scatter", "mode": "lines", "hoverinfo": "skip", "showlegend": False}
    shape = "hv" if series.mark == "steps" else "linear"
    ends = [
        edge | {"x": list(series.x), "y": list(each), "line": {"width": 0, "shape": shape}}
        for each in (series.low, series.high)
    ]
    ends[1] |= {"fill": "tonexty", "fillcolor": f"{colour}-pale"}
    return ends


def _heat(heat: Heat) -> dict[str, Any]:
    return {
        "type": "heatmap",
        "z": [list(row) for row in heat.z],
        "colorscale": "Viridis",
        "reversescale": heat.low_is_good,
        "texttemplate": "%{z:.4~g}",
        "colorbar": {"title": {"text": _plain(heat.label), "side": "right"}, "thickness": 12},
        "xgap": 2,
        "ygap": 2,
    }


def _plain(text: str) -> str:
    """The text with HTML escaped: Plotly interprets some tags."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
