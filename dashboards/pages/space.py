"""The space of a study: its holes, the trials and scores of each value, the importance of holes, and its versions."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from dashboards.analysis.holes import Importance, Tried, best_values, importances, tried, varied
from dashboards.analysis.tabulated import Numbers
from dashboards.figures.figure import Figure, labelled, written
from dashboards.figures.holes import importance_figure, marginal_figure, parallel_figure
from dashboards.server.sources import StudyCache
from dashboards.view import Ask, Column, View, crumbs, paged

MOST = 2000  # trials that are read: those trained longest first, then by number
AXES = 5  # holes in the parallel coordinates


@dataclass(frozen=True)
class Holes:
    """The values of some trials by hole, and statistics about them. trials: of the search, also those not read."""

    numbers: list[int]
    trials: int
    columns: dict[str, list[Any]]
    scores: Numbers
    tried: list[Tried]
    important: list[Importance]


def view(ask: Ask) -> View:
    """The page of the space."""
    study, table = ask.of, ask.of.table
    names = [each["name"] for each in study.study.objectives]
    objective = ask.parameters.choice("objective", names, names[0]) if names else ""
    holes = holes_of(study, objective)
    shown = [each.hole for each in holes.important] or list(holes.columns)
    hole = ask.parameters.choice("hole", shown, shown[0]) if shown else ""
    versions = study.reader.space_versions(study.study.id)
    own = [each for each in holes.tried if each.hole == hole]
    rows = [
        {
            "hole": e.hole,
            "value": written(e.value),
            "trials": e.trials,
            "scored": e.scored,
            "best": e.best,
            "mean": e.mean,
        }
        for e in holes.tried
    ]
    label = labelled(objective)
    columns = [
        *(
            Column("hole", "Hole", "path", sorts=True),
            Column("value", "Value"),
            Column("trials", "Tried", "number", sorts=True),
        ),
        *(Column("scored", "Trained longest", "number"), Column("best", f"Best {label.lower()}", "number", sorts=True)),
        Column("mean", "Mean", "number", sorts=True),
    ]
    return View(
        template="space.html",
        title="Space",
        values={
            "objective": objective,
            "hole": hole,
            "versions": [
                {"number": each.number, "created_at": f"{each.created_at:%Y-%m-%d %H:%M} UTC", "changes": changes}
                for each, changes in zip(versions, _changes([each.text for each in versions]))
            ],
            "text": versions[-1].text if versions else "",
            "read": len(holes.numbers),
            "trials": holes.trials,
        },
        shown={"objectives": [(name, labelled(name)) for name in names], "holes": shown, "address": study.address},
        tables={"values": paged(ask.parameters, columns, rows, empty="No trial has a point of this space yet.")},
        figures={
            "importance": importance_figure(holes.important, objective),
            "marginal": marginal_figure(hole, best_values(own, table.signs.get(objective, 1)), objective, len(own)),
        },
        crumbs=crumbs(study),
        is_live=True,
    )


def holes_of(study: StudyCache, objective: str) -> Holes:
    """Statistics about the holes in the trials of the search; computed again if a tenth more units have ended."""
    table = study.table

    def compute() -> Holes:
        rows = np.flatnonzero(table.texts["purpose"] == "search")
        trials, first = len(rows), np.argsort(~table.longest[rows], kind="stable")
        rows = np.sort(rows[first][:MOST])
        numbers = table.number[rows].tolist()
        points = study.reader.choices(study.study.id, numbers)
        columns = varied([points.get(number, {}) for number in numbers])
        known = objective in table.values
        scores = (
            np.where(table.longest[rows], table.values[objective][rows], np.nan)
            if known
            else np.full(len(rows), np.nan)
        )
        sign = table.signs.get(objective, 1)
        return Holes(numbers, trials, columns, scores, tried(columns, scores, sign), importances(columns, scores))

    return study.remember(("holes", objective), compute, of=study.tenth)


def parallel_of(study: StudyCache, objective: str) -> Figure:
    """Parallel coordinates of the longest trained trials: the most important holes and all objectives."""
    table, holes = study.table, holes_of(study, objective)
    rows = table.rows_of(holes.numbers)
    kept = np.flatnonzero(table.longest[rows]) if len(rows) == len(holes.numbers) else np.zeros(0, dtype=int)
    chosen = [each.hole for each in holes.important[:AXES]] or list(holes.columns)[:AXES]
    columns = {hole: [holes.columns[hole][place] for place in kept] for hole in chosen}
    values = {name: table.values[name][rows[kept]] for name in table.signs}
    signs = {objective: table.signs[objective]} | table.signs
    return parallel_figure(columns, values, signs)


def _changes(texts: list[str]) -> list[str]:
    """The changes of each version of the space, as lines with + and -; empty for the first."""
    found = [""] if texts else []
    for before, after in pairwise(texts):
        lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=2)
        found.append("\n".join(line for line in lines if not line.startswith(("---", "+++", "@@"))))
    return found
