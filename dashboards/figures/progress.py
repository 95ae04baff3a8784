"""How a search proceeded: the best value, the hypervolume, results by rung, learning curves, and the finals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from dashboards.analysis.history import CONFIDENCE, Growth, best_so_far, by_chance, hypervolume, in_order
from dashboards.analysis.tabulated import Numbers, Tabulated
from dashboards.analysis.thinning import thinned
from dashboards.figures.figure import QUIET, Axis, Figure, Series, labelled
from nas.finals.verdict import Comparison, Verdict
from nas.report.tables import short
from nas.store.records import MAIN
from searchspace.wording import plural

AXES = {"trials": "Trials that ended", "seconds": "Seconds since the first trial", "device_seconds": "Device-seconds"}


def amounts(table: Tabulated, axis: str) -> Numbers:
    """The position of each trial on the horizontal axis; trials are ordered by the end of their last unit."""
    ordered = in_order(table)
    if axis == "trials":
        column = np.zeros(len(table))
        column[ordered] = np.arange(1, len(ordered) + 1)
        return column
    if axis == "device_seconds":
        order = np.argsort(table.sequence, kind="stable")
        column = np.zeros(len(table))
        column[order] = np.cumsum(table.seconds[order])
        return column
    created = table.numbers["created_at"]
    ended = np.where(np.isfinite(table.numbers["finished_at"]), table.numbers["finished_at"], created)
    return ended - (np.nanmin(created) if len(created) else 0.0)


def arms_of(table: Tabulated) -> list[str]:
    """The arms that have comparable trials, the search itself first."""
    found = dict.fromkeys(table.texts["arm"][in_order(table)].tolist())
    return sorted(found, key=lambda arm: (arm != MAIN, arm))


def shown_arm(arm: str) -> str:
    """The name of a control arm without the prefix `control-`."""
    return arm.removeprefix("control-")


def history_figure(table: Tabulated, objective: str, axis: str = "trials") -> Figure:
    """The best value so far of each arm, and the range of draws from the first control arm."""
    at = amounts(table, axis)
    arms = arms_of(table)
    series = []
    for place, arm in enumerate(arms):
        own = arm if len(arms) > 1 else None
        name = "The search" if arm == MAIN else f"Control: {shown_arm(arm)}"
        series.append(_grown(name, best_so_far(table, objective, own), at, place, dashed=arm != MAIN))
    controls = [arm for arm in arms if arm != MAIN]
    note = ""
    if controls and arms[0] == MAIN:
        series.insert(0, _chance(table, objective, controls[0], at))
        note = (
            f"The band: if as many trials were drawn at random from the results of {shown_arm(controls[0])}, the best "
            f"value would be in the band in {CONFIDENCE:.0%} of cases."
        )
    return Figure(
        title=f"Best {labelled(objective).lower()} so far",
        x=Axis(label=AXES[axis]),
        y=Axis(label=labelled(objective)),
        series=tuple(each for each in series if len(each.x)),
        note=note,
        empty="No trial has ended with a result yet.",
    )


def _chance(table: Tabulated, objective: str, control: str, at: Numbers) -> Series:
    rows = in_order(table, MAIN)
    ends = np.unique(np.geomspace(1, max(len(rows), 1), 60).astype(int))[: len(rows)]
    values = table.values[objective][in_order(table, control)]
    middle, a, b = by_chance(values, ends, table.signs[objective])
    return Series(
        name=f"Chance, by {shown_arm(control)}",
        x=at[rows[ends - 1]].tolist(),
        y=middle.tolist(),
        low=np.minimum(a, b).tolist(),
        high=np.maximum(a, b).tolist(),
        mark="line",
        colour=4,
    )


def _grown(name: str, growth: Growth, at: Numbers, colour: int, *, dashed: bool) -> Series:
    return Series(
        name=name,
        x=at[growth.rows].tolist(),
        y=growth.values.tolist(),
        mark="steps",
        colour=colour if colour < 4 else colour + 1,
        dashed=dashed,
    )


def hypervolume_figure(table: Tabulated, objectives: Sequence[str], axis: str = "trials") -> Figure:
    """The share of the final hypervolume that each arm had reached."""
    at = amounts(table, axis)
    arms = arms_of(table)
    series = [
        _grown(
            "The search" if arm == MAIN else f"Control: {shown_arm(arm)}",
            hypervolume(table, objectives, arm if len(arms) > 1 else None),
            at,
            place,
            dashed=arm != MAIN,
        )
        for place, arm in enumerate(arms)
    ]
    return Figure(
        title="Hypervolume so far",
        x=Axis(label=AXES[axis]),
        y=Axis(label="Share of the final hypervolume"),
        series=tuple(each for each in series if len(each.x)),
        note="The volume that the Pareto front dominates, measured from the worst value of each objective.",
        empty="The hypervolume needs two objectives and a trial with a result.",
    )


def rungs_figure(results: Sequence[tuple[int, int, int, str, float]], objective: str, address: str) -> Figure:
    """The results of trials at each rung. A line joins the rungs of each trial that was promoted."""
    by_trial: dict[int, list[tuple[int, float]]] = {}
    for number, _rung, steps, _arm, value in results:
        by_trial.setdefault(number, []).append((steps, value))
    points = [(number, steps, value) for number, found in by_trial.items() for steps, value in found]
    chosen: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
    if points:
        chosen = thinned([each[1] for each in points], [each[2] for each in points], most=1500)
    points = [points[i] for i in chosen]
    lines: list[tuple[float | None, float | None]] = []
    for found in list(by_trial.values())[-400:]:
        if len(found) > 1:
            lines += [*sorted(found), (None, None)]
    return Figure(
        title=f"{labelled(objective)} at each rung",
        x=Axis(label="Training steps at the end of the rung", log=True),
        y=Axis(label=labelled(objective)),
        series=(
            Series(name="Promoted", x=[x for x, _ in lines], y=[y for _, y in lines], mark="line", colour=QUIET),
            Series(
                name="Result of a rung",
                x=[each[1] for each in points],
                y=[each[2] for each in points],
                text=[f"Trial {n} at {plural(steps, 'step')}: {short(value)}" for n, steps, value in points],
                links=[f"{address}/trials/{each[0]}" for each in points],
            ),
        ),
        note="A line joins the results of one trial at successive rungs.",
        empty="No rung has ended yet.",
    )


def curves_figure(curves: Mapping[str, Sequence[tuple[int, float | None]]], title: str = "Learning curves") -> Figure:
    """The training loss of some trials by step. curves: {name: [(step, loss), ...]}."""
    series = []
    for place, (name, found) in enumerate(curves.items()):
        step = max(1, len(found) // 400)
        some = [*found[::step], *(found[-1:] if step > 1 else ())]
        series.append(Series(name=name, x=[x for x, _ in some], y=[y for _, y in some], mark="line", colour=place))
    return Figure(
        title=title,
        x=Axis(label="Training step"),
        y=Axis(label="Training loss"),
        series=tuple(series),
        empty="No training loss was recorded yet.",
    )


def verdict_figure(finals: Verdict) -> Figure:
    """The winner minus the best baseline, and minus the best of each control arm, with their intervals."""
    names: list[str] = []
    middle: list[float] = []
    low: list[float] = []
    high: list[float] = []

    def add(against: str, steps: int, found: Comparison) -> None:
        if found.difference is not None and found.low is not None and found.high is not None:
            names.append(f"{against}, {plural(steps, 'step')}" if len(finals.lengths) > 1 else against)
            middle.append(found.difference)
            low.append(found.low)
            high.append(found.high)

    for steps, found in finals.comparison.lengths.items() if finals.comparison else ():
        add(finals.against[steps], steps, found)
    for arm, control in finals.controls.items():
        for steps, found in control.lengths.items() if control else ():
            add(arm, steps, found)
    rows = list(range(len(names)))
    line = Series(
        name="No difference", x=[0.0, 0.0], y=[-0.5, len(names) - 0.5], mark="line", colour=QUIET, dashed=True
    )
    spans = Series(
        name="The winner’s difference", x=middle, y=rows, low=low, high=high, mark="spans", colour=0, size=9, text=names
    )
    better = "negative is better" if not finals.direction.startswith("max") else "positive is better"
    return Figure(
        title="The winner against baselines",
        x=Axis(label=f"Winner minus entrant: {labelled(finals.objective).lower()} on test data ({better})"),
        y=Axis(label="", categories=tuple(names)),
        series=(line, spans) if names else (),
        height=110 + 34 * len(names),
        note=f"95 % intervals over {plural(finals.seeds, 'seed')} and the held-out documents.",
        empty="The finals have no comparison with a baseline.",
    )
