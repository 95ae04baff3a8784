"""The lineage of all trials: which operators made them, which improved on their parents, and the line of the best."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from dashboards.analysis.lineage import Lineage, lineage
from dashboards.analysis.tabulated import Tabulated
from dashboards.analysis.thinning import thinned
from dashboards.figures.figure import QUIET, Axis, Figure, Series, labelled
from dashboards.pages.trial import family_table
from dashboards.view import Ask, Column, Table, View, crumbs, paged
from nas.store.records import SEARCH

SHOWN = 7  # operators in the figure
OPERATORS = (
    *(Column("operator", "Operator", sorts=True), Column("trials", "Trials", "number", sorts=True)),
    *(
        Column("scored", "Trained longest", "number"),
        Column("compared", "Compared with parents", "number"),
        Column("improved", "Better than all of them", "number", sorts=True),
    ),
    *(Column("share", "Share (%)", "percent"), Column("best", "Best", "number", sorts=True)),
)


def view(ask: Ask) -> View:
    """The page of the lineage."""
    study, table = ask.of, ask.of.table
    family = study.remember("lineage", lambda: lineage(study.reader, study.study))
    names = [each["name"] for each in study.study.objectives]
    objective = ask.parameters.choice("objective", names, names[0]) if names else ""
    figures = {}
    if names:
        figures["family"] = study.remember(
            ("family", objective), lambda: _figure(table, family, objective, study.address)
        )
    operators = study.remember(("operators", objective), lambda: _operators(table, family, objective))
    best = _best(table, objective) if names else None
    tables: dict[str, Table] = {
        "operators": paged(ask.parameters, OPERATORS, operators, empty="No trial was proposed yet.")
    }
    if best is not None:
        tables["line"] = family_table(study, study.reader.trial(study.study.id, best), family)
    return View(
        template="lineage.html",
        title="Lineage",
        values={"objective": objective, "best": best},
        shown={"objectives": [(name, labelled(name)) for name in names], "address": study.address},
        tables=tables,
        figures=figures,
        crumbs=crumbs(study),
        is_live=True,
    )


def _best(table: Tabulated, objective: str) -> int | None:
    rows = np.flatnonzero(table.longest & (table.texts["purpose"] == SEARCH))
    if not len(rows):
        return None
    return int(table.number[rows[np.argmin(table.signs[objective] * table.values[objective][rows])]])


def _operators(table: Tabulated, family: Lineage, objective: str) -> list[dict[str, object]]:
    """One row for each operator. A trial is compared only with parents that were also trained longest."""
    scores, searched = _scores(table, objective), set(table.number[table.texts["purpose"] == SEARCH].tolist())
    rows: dict[str, dict[str, float]] = {}
    for number, origin in family.origins.items():
        if number not in searched:  # the finals train again what the search found
            continue
        row = rows.setdefault(origin.operator, {"trials": 0, "scored": 0, "improved": 0, "compared": 0})
        row["trials"] += 1
        own = scores.get(number)
        if own is None:
            continue
        row["scored"] += 1
        row["best"] = min(own, row.get("best", own))
        known = [scores[parent] for parent in family.parents(number) if parent in scores]
        if known:
            row["compared"] += 1
            row["improved"] += own < min(known)
    sign = table.signs.get(objective, 1)
    return [
        {
            "operator": name or "unknown",
            **{key: int(row[key]) for key in ("trials", "scored", "compared", "improved")},
            "share": 100 * row["improved"] / row["compared"] if row["compared"] else None,
            "best": sign * row["best"] if "best" in row else None,
        }
        for name, row in sorted(rows.items(), key=lambda item: -item[1]["trials"])
    ]


def _scores(table: Tabulated, objective: str) -> Mapping[int, float]:
    """{trial: objective, with a sign such that smaller is better} of the trials that were trained longest."""
    if objective not in table.values:
        return {}
    rows = np.flatnonzero(table.longest)
    values = table.signs[objective] * table.values[objective][rows]
    return dict(zip(table.number[rows].tolist(), values.tolist()))


def _figure(table: Tabulated, family: Lineage, objective: str, address: str) -> Figure:
    """The trials by number, with lines from parents to children among the ancestors of the front."""
    searched = np.flatnonzero(table.searched)
    values = dict(zip(table.number[searched].tolist(), table.values[objective][searched].tolist()))
    edges: list[tuple[float | None, float | None]] = []
    seen: set[int] = set()
    left = table.number[table.front(list(table.signs))].tolist()
    while left and len(seen) < 500:
        number = left.pop()
        if number in seen:
            continue
        seen.add(number)
        for parent in family.parents(number):
            if parent in values and number in values:
                edges += [(parent, values[parent]), (number, values[number]), (None, None)]
            left.append(parent)
    lines = Series(
        name="Ancestors of the front", x=[x for x, _ in edges], y=[y for _, y in edges], mark="line", colour=1
    )
    operators = Counter(table.texts["operator"][searched].tolist()).most_common()
    cut = f" The {SHOWN} operators of {len(operators)} with the most trials." if len(operators) > SHOWN else ""
    series = [lines]
    for place, (operator, _) in enumerate(operators[:SHOWN]):
        rows = searched[table.texts["operator"][searched] == operator]
        rows = rows[thinned(table.number[rows], table.values[objective][rows], most=700)]
        numbers = table.number[rows].tolist()
        series.append(
            Series(
                name=operator or "unknown",
                x=numbers,
                y=table.values[objective][rows].tolist(),
                colour=QUIET if operator == "random" else place + (1 if place else 0),
                symbol=("circle", "square", "triangle", "diamond")[place % 4],
                size=5,
                text=[f"Trial {number}, {operator}" for number in numbers],
                links=[f"{address}/trials/{number}" for number in numbers],
            )
        )
    return Figure(
        title=f"{labelled(objective)} of every trial",
        x=Axis(label="Trial"),
        y=Axis(label=labelled(objective)),
        series=tuple(each for each in series if len(each.x)),
        height=420,
        note="A point is a trial. Lines join parents and children among the ancestors of the Pareto front." + cut,
        empty="No trial has a result yet.",
    )
