"""What predicts quality, and whether the search is better than its control, as trials end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dashboards.analysis.history import in_order
from dashboards.analysis.tabulated import Numbers, Tabulated
from dashboards.figures.figure import QUIET, Axis, Figure, Series, labelled
from dashboards.figures.progress import arms_of, history_figure, hypervolume_figure
from dashboards.pages.study import status_of
from dashboards.server.sources import StudyCache
from dashboards.view import Ask, Column, Table, View, crumbs
from nas.statistics.rank_correlation import CONFIDENCE, LEAST, correlation
from nas.store.records import MAIN

POINTS = 24  # numbers of trials at which correlations are computed, at most
MOST = 3000  # trials for correlations
PREDICTORS = (
    *(Column("name", "Predictor"), Column("value", "Rank correlation", "number"), Column("low", "Low", "number")),
    *(Column("high", "High", "number"), Column("trials", "Trials", "number"), Column("verdict", "What it means")),
)
ARMS = (
    *(
        Column("arm", "Arm", "word"),
        Column("trials", "Trials", "number"),
        Column("scored", "Trained longest", "number"),
    ),
    *(Column("best", "Best", "number"), Column("median", "Median", "number"), Column("seconds", "Time", "seconds")),
)


def view(ask: Ask) -> View:
    """The page of the audit."""
    study, table = ask.of, ask.of.table
    names = [each["name"] for each in study.study.objectives]
    figures: dict[str, Figure] = {}
    predictors: list[dict[str, Any]] = []
    if names:
        known = study.remember("predictors", lambda: _predictors(study, names[0]))
        figures["correlations"], predictors = _audit(table, known, names[0])
        figures["history"] = history_figure(table, names[0])
    if len(names) > 1:
        figures["hypervolume"] = study.remember(("hypervolume", "trials"), lambda: hypervolume_figure(table, names))
    status = status_of(study)
    arms = arms_of(table)
    return View(
        template="audit.html",
        title="Audit",
        values={
            "objective": names[0] if names else "",
            "controls": [arm for arm in arms if arm != MAIN],
            "probes": [each.sentence() for each in status.probes],
            "sentences": [each.sentence() for each in status.controls],
        },
        shown={"address": study.address},
        tables={
            "predictors": Table(
                columns=PREDICTORS,
                rows=predictors,
                empty=f"Correlations need {LEAST} trials that were trained longest.",
            ),
            "arms": Table(columns=ARMS, rows=_arms(table, names[0]) if names else [], empty="No trial has ended yet."),
        },
        figures=figures,
        crumbs=crumbs(study),
        is_live=True,
    )


def _predictors(study: StudyCache, objective: str) -> dict[str, Numbers]:
    """The quantities that are known before training ends: sizes, costs, probes, and the result of the first rung."""
    table = study.table
    found = {"Parameters": table.numbers["parameters"], "Training FLOPs": table.numbers["step_flops"]}
    for number_of, column in _columns(study, objective).items():
        found[number_of] = column
    return {name: column for name, column in found.items() if np.isfinite(column).any()}


def _columns(study: StudyCache, objective: str) -> Mapping[str, Numbers]:
    table = study.table
    columns: dict[str, dict[int, float]] = {}
    for number, found in study.reader.probes(study.study.id, MOST).items():
        for name, value in found.items():
            columns.setdefault(f"Probe: {labelled(name).lower()}", {})[number] = value
    for number, rung, _steps, _arm, value in study.reader.rungs(study.study.id, objective, MOST):
        if rung == 0:
            columns.setdefault(f"{labelled(objective)} at rung 0", {})[number] = value
    made = {}
    for name, values in columns.items():
        column = np.full(len(table), np.nan)
        numbers = sorted(values)
        rows = table.rows_of(numbers)
        if len(rows) == len(numbers):  # else the study has grown since the table was read
            column[rows] = [values[number] for number in numbers]
        made[name] = column
    if (table.rung[table.longest] == 0).any():  # the first rung is the last one, so it would predict itself
        made.pop(f"{labelled(objective)} at rung 0", None)
    return made


def _audit(table: Tabulated, known: Mapping[str, Numbers], objective: str) -> tuple[Figure, list[dict[str, Any]]]:
    rows = in_order(table)[:MOST]
    quality = table.values[objective]
    series: list[Series] = []
    listed: list[dict[str, Any]] = []
    for place, (name, column) in enumerate(known.items()):
        usable = rows[np.isfinite(column[rows])]
        ends: list[int] = []
        if len(usable) >= LEAST:
            ends = np.unique(np.geomspace(LEAST, len(usable), POINTS).astype(int)).tolist()
        points = [(end, correlation(column[usable[:end]].tolist(), quality[usable[:end]].tolist())) for end in ends]
        told = [(end, each) for end, each in points if each is not None]
        series.append(
            Series(
                name=name,
                x=[end for end, _ in told],
                y=[each.value for _, each in told],
                low=[each.low for _, each in told],
                high=[each.high for _, each in told],
                mark="line",
                colour=place,
            )
        )
        if told:
            last = told[-1][1]
            row = {"name": name, "value": last.value, "low": last.low, "high": last.high, "trials": last.trials}
            listed.append(row | {"verdict": _meaning(last.low, last.high)})
    longest = max((int(row["trials"]) for row in listed), default=0)
    zero = Series(name="", x=[LEAST, longest], y=[0, 0], mark="line", colour=QUIET, dashed=True)
    figure = Figure(
        title=f"Rank correlation with {labelled(objective).lower()}",
        x=Axis(label="Trials that were trained longest"),
        y=Axis(label="Rank correlation"),
        series=(zero, *series) if longest else (),
        note=f"Spearman's correlation with {CONFIDENCE:.0%} intervals, recomputed as trials ended. Trials of a higher "
        "rung were chosen for their quality, so their correlations are lower than those of all trials would be.",
        empty=f"Correlations need {LEAST} trials that were trained longest.",
    )
    return figure, listed


def _meaning(low: float, high: float) -> str:
    if low <= 0 <= high:
        return "no relation shown"
    size = min(abs(low), abs(high))
    return (
        "predicts the ranking almost alone"
        if size > 0.8
        else "predicts it in part"
        if size > 0.3
        else "predicts it weakly"
    )


def _arms(table: Tabulated, objective: str) -> list[dict[str, Any]]:
    found = []
    for arm in sorted(set(table.texts["arm"].tolist()), key=lambda arm: (arm != MAIN, arm)):
        own = (table.texts["arm"] == arm) & (table.texts["purpose"] == "search")
        values = table.values[objective][own & table.longest]
        sign = table.signs[objective]
        found.append(
            {
                "arm": arm,
                "trials": int(own.sum()),
                "scored": len(values),
                "best": float((sign * values).min() * sign) if len(values) else None,
                "median": float(np.median(values)) if len(values) else None,
                "seconds": float(table.seconds[own].sum()),
            }
        )
    return found
