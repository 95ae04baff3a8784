"""Up to six trials side by side: layers with differences marked, objectives, curves, and the holes that differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dashboards.analysis.layers import aligned, lines_of
from dashboards.figures.figure import labelled, written
from dashboards.figures.progress import curves_figure
from dashboards.server.parameters import NotFound
from dashboards.view import Ask, Column, Table, View, crumbs
from nas.numbers import address_of, name_of

MOST = 6


def view(ask: Ask) -> View:
    """The page of a comparison. Raises NotFound for a trial that does not exist, BadRequest for invalid numbers."""
    study = ask.of
    numbers = ask.parameters.trials("trials", MOST)
    for number in numbers:
        if not len(study.table.rows_of([number])):
            raise NotFound(f"This study has no {name_of(number)}.")
    names = {number: name_of(number).capitalize() for number in numbers}
    trials = [study.reader.trial(study.study.id, number) for number in numbers]
    drawn = [lines_of(study, ask.worker, trial) for trial in trials]
    problem = next((problem for lines, problem in drawn if not lines), "")
    lines = aligned([lines for lines, _ in drawn]) if trials else []
    scores = list(dict.fromkeys(name for trial in trials for name in trial.values))
    heads = [Column(str(number), names[number]) for number in numbers]
    values = [
        {"name": labelled(name), **{str(trial.number): trial.values.get(name) for trial in trials}} for name in scores
    ]
    values.append({"name": "Parameters", **{str(trial.number): trial.parameters for trial in trials}})
    values.append({"name": "Steps", **{str(trial.number): trial.steps for trial in trials}})
    states = {str(trial.number): study.state_of(trial.number, trial.state) for trial in trials}
    values.append({"name": "State", **states})
    holes = [
        {"name": hole, **{str(trial.number): _value(trial.choices, hole) for trial in trials}}
        for hole in dict.fromkeys(hole for trial in trials for hole in trial.choices or {})
        if len({repr((trial.choices or {}).get(hole)) for trial in trials}) > 1
    ]
    curves = {names[number]: study.reader.curve(study.study.id, number) for number in numbers}
    layers = [
        {"place": line.place, "differs": line.differs, **{str(n): text for n, text in zip(numbers, line.texts)}}
        for line in lines
    ]
    title = ", ".join(name_of(number).removeprefix("trial ") for number in numbers)
    numeric = [Column(head.key, head.label, "number") for head in heads]
    return View(
        template="compare.html",
        title=f"Compare {title}".strip(),
        values={"trials": numbers, "problem": problem},
        shown={
            "address": study.address,
            "links": [(address_of(number), names[number]) for number in numbers],
        },
        tables={
            "values": Table(columns=[Column("name", "Quantity"), *numeric], rows=values if numbers else []),
            "layers": Table(columns=[Column("place", "Place"), *heads], rows=layers),
            "holes": Table(
                columns=[Column("name", "Hole", "path"), *heads], rows=holes, empty="Their points are equal."
            ),
        },
        figures={"curves": curves_figure({name: curve for name, curve in curves.items() if curve})},
        crumbs=crumbs(study),
        is_live=True,
        is_settled=not problem,
    )


def _value(choices: Mapping[str, Any] | None, hole: str) -> str | None:
    """The value of a hole as text; None if the trial does not have this hole."""
    return written(choices[hole]) if choices and hole in choices else None
