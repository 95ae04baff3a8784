"""Figures about holes: their importance, the scores of the values of one hole, and parallel coordinates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dashboards.analysis.holes import Importance, Tried, order_of
from dashboards.analysis.tabulated import Numbers
from dashboards.figures.figure import QUIET, Axis, Figure, Series, labelled, written
from searchspace.wording import plural

SHOWN = 15  # holes in the figure: the most important
LINES = 150  # of the best trials at most, and about as many of the others


def importance_figure(found: Sequence[Importance], objective: str) -> Figure:
    """The importance of each hole with its interval."""
    shown = found[:SHOWN]
    cut = f" The {SHOWN} most important of {len(found)} holes." if len(found) > SHOWN else ""
    return Figure(
        title=f"Which holes decide {labelled(objective).lower()}",
        x=Axis(label="Importance (share of the variance)"),
        y=Axis(label="hole", categories=tuple(each.hole for each in shown)),
        series=(
            Series(
                name="Importance",
                x=[each.value for each in shown],
                y=list(range(len(shown))),
                low=[each.low for each in shown],
                high=[each.high for each in shown],
                mark="spans",
                size=8,
                text=[each.hole for each in shown],
            ),
        )
        if shown
        else (),
        height=90 + 26 * len(shown),
        note="Permutation importance of a forest of 40 trees over the trials that were trained longest, with "
        f"90 % intervals over the trees. If an interval includes zero, the hole may not matter.{cut}",
        empty="The importance of holes needs 12 trials with a result.",
    )


def marginal_figure(hole: str, found: Sequence[Tried], objective: str, values: int) -> Figure:
    """The mean score of some of the values of one hole, with its interval. values: how many it has."""
    own = [each for each in found if each.mean is not None]
    cut = f" The {len(own)} values with the best results of {values} that were tried." if len(found) < values else ""
    return Figure(
        title=f"{labelled(objective)} by {hole}",
        x=Axis(label=hole, categories=tuple(written(each.value) for each in own)),
        y=Axis(label=labelled(objective)),
        series=(
            Series(
                name="Mean",
                x=list(range(len(own))),
                y=[each.mean for each in own],
                low=[each.low for each in own],
                high=[each.high for each in own],
                size=8,
                text=[f"{each.value}: {plural(each.scored, 'trial')}" for each in own],
            ),
            Series(
                name="Best",
                x=list(range(len(own))),
                y=[each.best for each in own],
                colour=1,
                symbol="diamond",
                text=[f"best of {each.value}" for each in own],
            ),
        ),
        height=320,
        note="Means with 95 % intervals over trials. Other holes differ too, so they may be the cause of a difference."
        + cut,
        empty="No trial with a result has this hole." if hole else "No trial has a result yet.",
    )


def parallel_figure(
    columns: Mapping[str, Sequence[Any]], values: Mapping[str, Numbers], signs: Mapping[str, int]
) -> Figure:
    """Parallel coordinates: each trial is a line across some holes and all objectives. The best tenth is in colour."""
    names = [*columns, *values]
    scaled = [_scaled(column) for column in columns.values()] + [_unit(column) for column in values.values()]
    series: list[Series] = []
    if scaled and len(scaled[0]):
        rows = np.stack(scaled, axis=1)
        first, sign = next(iter(signs.items()))
        score = sign * values[first]
        order = np.argsort(np.where(np.isfinite(score), score, np.inf), kind="stable")
        best = order[: max(1, len(order) // 10)][:LINES]
        others = order[len(best) :]
        others = others[:: max(1, len(others) // LINES)]
        for name, chosen, colour in (("Other trials", others, QUIET), ("Best tenth", best, 0)):
            xs: list[float | None] = []
            ys: list[float | None] = []
            for row in chosen:
                xs += [*range(len(names)), None]
                ys += [*rows[row].tolist(), None]
            series.append(Series(name=name, x=xs, y=ys, mark="line", colour=colour))
    return Figure(
        title="Trials across holes and objectives",
        x=Axis(label="", categories=tuple(labelled(name) if name in values else name for name in names)),
        y=Axis(label="Scaled value"),
        series=tuple(series),
        note=f"Each line is one trial: the best tenth, at most {LINES}, and about as many others. Each quantity "
        "is scaled: its lowest value is at 0, its highest at 1. Values that are not numbers are in alphabetical order.",
        height=440,
        empty="No trial with a result yet.",
    )


def _scaled(column: Sequence[Any]) -> Numbers:
    ordered = sorted({repr(value): value for value in column}.items(), key=lambda item: order_of(item[1]))
    place = {key: i for i, (key, _) in enumerate(ordered)}
    return np.asarray([place[repr(value)] / max(1, len(place) - 1) for value in column])


def _unit(column: Numbers) -> Numbers:
    known = column[np.isfinite(column)]
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
    return (column - low) / ((high - low) or 1.0)
