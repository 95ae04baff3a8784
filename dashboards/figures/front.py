"""The Pareto front of a study: every trial by two objectives, with baselines, controls, finalists and the winner."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from dashboards.analysis.tabulated import Mask, Numbers, Tabulated
from dashboards.analysis.thinning import thinned
from dashboards.figures.figure import QUIET, Axis, Figure, Series, labelled
from nas.report.tables import short


def front_figure(
    table: Tabulated,
    x: str,
    y: str,
    *,
    address: str,
    shade: str = "",
    log: Collection[str] = (),
    zoom: tuple[float, float, float, float] | None = None,
    dominated: bool = True,
    finalists: Collection[int] = (),
    winner: int | None = None,
) -> Figure:
    """Objective `y` against `x`, an objective or a known cost.

    shade: a third quantity, shown as colour. zoom: the visible range of x, then of y. address: of the study.
    """
    longest, searched = table.longest, table.searched
    front = table.front([x, y])
    on_front = np.zeros(len(table), dtype=bool)
    on_front[front] = True
    special = on_front | table.baselines | np.isin(table.number, list(finalists))
    kinds = [
        ("Trained for fewer steps", searched & ~longest & ~table.baselines, QUIET, "circle", 4.0),
        ("Dominated", longest & ~on_front & ~table.controls & ~table.baselines, 5, "circle", 5.0),
        ("Control arm", longest & table.controls & ~on_front & ~table.baselines, 4, "triangle", 6.0),
        ("Baseline", searched & table.baselines, 2, "square", 8.0),
        ("Pareto front", on_front & ~table.baselines, 0, "circle", 8.0),
        ("Finalist", np.isin(table.number, list(finalists)) & (table.number != (winner or -1)), 3, "diamond", 8.0),
        ("Winner", table.number == (-1 if winner is None else winner), 1, "star", 10.0),
    ]
    if not dominated:
        kinds = kinds[3:]
    series = [_stairs(table, front, x, y)]
    shown = searched & np.isfinite(table.column(x)) & np.isfinite(table.column(y))
    if zoom is not None:
        shown &= _inside(table.column(x), zoom[:2]) & _inside(table.column(y), zoom[2:])
    log_axes = (x in log and _positive(table, x), y in log and _positive(table, y))
    for name, mask, colour, symbol, size in kinds:
        rows = np.flatnonzero(mask & shown)
        if shade and name != "Winner":
            rows = rows[np.isfinite(table.column(shade)[rows])]
        rows = rows[thinned(table.column(x)[rows], table.column(y)[rows], special[rows], log=log_axes)]
        series.append(
            _points(table, rows, x, y, address, name, colour, symbol, size, shade if name != "Winner" else "")
        )
    left_out = int(searched.sum()) - sum(len(each.x) for each in series[1:])
    note = "A line joins the front: no other trial with as many steps is better in both."
    if left_out > 0 and dominated and zoom is None:
        note += f" {left_out:,} trials that overlap with others are not drawn; zoom in to see them."
    return Figure(
        title=f"{labelled(y)} against {labelled(x)}",
        x=Axis(label=labelled(x), log=log_axes[0]),
        y=Axis(label=labelled(y), log=log_axes[1]),
        series=tuple(each for each in series if len(each.x)),
        note=note,
        height=440,
        brush=f"{address}/compare",
        empty="No trial has a result yet. Points appear when the first trials end.",
    )


def _inside(values: Numbers, ends: tuple[float, ...]) -> Mask:
    return (values >= ends[0]) & (values <= ends[1])


def _positive(table: Tabulated, name: str) -> bool:
    values = table.column(name)[table.searched]
    return bool(len(values)) and bool((values > 0).all())


def _stairs(table: Tabulated, front: NDArray[np.int64], x: str, y: str) -> Series:
    order = front[np.argsort(table.column(x)[front], kind="stable")]
    return Series(
        name="",
        x=table.column(x)[order].tolist(),
        y=table.column(y)[order].tolist(),
        mark="line",
        colour=0,
        dashed=True,
    )


def _points(
    table: Tabulated,
    rows: NDArray[np.int64],
    x: str,
    y: str,
    address: str,
    name: str,
    colour: int,
    symbol: str,
    size: float,
    shade: str,
) -> Series:
    xs, ys, numbers = table.column(x)[rows].tolist(), table.column(y)[rows].tolist(), table.number[rows].tolist()
    return Series(
        name=name,
        x=xs,
        y=ys,
        colour=colour,
        symbol=symbol,
        size=size,
        text=[f"Trial {n}: {short(a)}, {short(b)}" for n, a, b in zip(numbers, xs, ys)],
        links=[f"{address}/trials/{n}" for n in numbers],
        shade=table.column(shade)[rows].tolist() if shade else (),
        shade_label=labelled(shade) if shade else "",
    )
