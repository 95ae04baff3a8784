"""One trial: its architecture, costs, learning curve, rungs, family, neighbours, and its measured latency."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from markupsafe import Markup

from dashboards.analysis.layers import lines_of
from dashboards.analysis.lineage import Lineage, changed, distance, lineage
from dashboards.figures.architecture import Line, architecture_svg
from dashboards.figures.figure import labelled
from dashboards.figures.marks import cut
from dashboards.figures.progress import curves_figure
from dashboards.pages.shading import Shaded, shaded
from dashboards.server.parameters import NotFound
from dashboards.server.sources import StudyCache
from dashboards.view import Ask, Column, Table, View, crumbs
from nas.latency import evidence
from nas.location import trial_name
from nas.numbers import FIRST_FINAL, address_of, final_of, name_of, number_of
from nas.report import trials
from nas.report.tables import duration, reason, short
from nas.store import Trial
from nas.store.records import SEARCH
from searchspace.wording import plural

NEIGHBOURS, COMPARED, RELATIVES = 8, 1000, 12
RUNGS = (
    *(Column("kind", "Unit"), Column("rung", "Rung", "number"), Column("steps", "Steps", "number")),
    *(
        Column("state", "State", "state"),
        Column("attempts", "Attempts", "number"),
        Column("seconds", "Time", "seconds"),
    ),
    *(Column("device", "Device", "word"), Column("host", "Host"), Column("failure", "Failure")),
)
FAMILY = (
    *(Column("trial", "Trial", "number"), Column("relation", "Relation"), Column("value", "Value", "number")),
    *(Column("origin", "Made by"), Column("changes", "What changed")),
)
NEAR = (
    Column("trial", "Trial", "number"),
    Column("distance", "Distance", "number"),
    Column("value", "Value", "number"),
)


def view(ask: Ask) -> View:
    """The page of a trial. Raises NotFound if the study has no such trial."""
    study, number = ask.of, _number(ask)
    trial = study.reader.trial(study.study.id, number)
    told = trials.story(study.reader, study.study, number)
    family = study.remember("lineage", lambda: lineage(study.reader, study.study))
    lines, problem = lines_of(study, ask.worker, trial)
    picture = shaded(ask, trial, lines)
    curve = study.reader.curve(study.study.id, number)
    name = trial_name(study.reader, study.study.name, trial)
    title = trial.name.capitalize()
    return View(
        template="trial.html",
        title=title,
        values={
            "trial": number,
            "final": trial.final,
            "story": told,
            "architecture": trial.architecture,
            "hash": trial.architecture_hash,
            "choices": trial.choices or {},
            "values": dict(trial.values),
            "error": trial.error_text or "",
            "evidence": [evidence.sentence(key, found, name) for key, found in (trial.evidence or {}).items()],
        },
        shown={
            "facts": _facts(study, trial),
            "picture": Markup(_drawn(picture, problem, title)),
            "reason": reason(trial.error_text or ""),
            "commands": [f"nas show {name}", f"nas export {name} --format python -o model", f"nas profile {name}"],
            "quantities": picture.offered.items(),
            "shade": picture.chosen,
            "remarks": [each for each in (problem if lines else "", picture.note) if each],
            "address": study.address,
            "study": f"{study.source.key}/{study.slug}",
            "before": _neighbour(study, number, -1),
            "after": _neighbour(study, number, 1),
        },
        tables={
            "blocks": picture.table(),
            "rungs": _rungs(study, number),
            "family": family_table(study, trial, family),
            "neighbours": _neighbours(study, trial),
            **({"kernels": _served(trial)} if trial.evidence else {}),
        },
        figures={"curve": curves_figure({"": curve} if curve else {}, "Training loss")},
        crumbs=crumbs(study),
        is_live=True,
        is_settled=any(line.cost for line in lines) and picture.is_settled,
    )


def _drawn(picture: Shaded, problem: str, title: str) -> str:
    return architecture_svg(picture.lines or [Line(depth=0, label=problem or "?")], picture.quantity, title=title)


def _number(ask: Ask) -> int:
    written = ask.path.rpartition("/")[2]
    table, number = ask.of.table, number_of(written)
    if number is not None and len(table.rows_of([number])):
        return number
    if number is None or final_of(number) is None:
        below = table.number[table.number < FIRST_FINAL]
        there = f"The last one is {below[-1]}." if len(below) else "There are none yet."
        raise NotFound(f"This study has no trial {written[:20]!r}. {there}")
    finals = int((table.number >= FIRST_FINAL).sum())
    there = f"It has {plural(finals, 'final')}." if finals else "It has no finals yet."
    raise NotFound(f"This study has no {name_of(number)}. {there}")


def _neighbour(study: StudyCache, number: int, step: int) -> tuple[str, str] | None:
    """(address, name) of the trial before or after this one."""
    table = study.table
    place = int(np.searchsorted(table.number, number)) + step
    if not 0 <= place < len(table):
        return None
    found = int(table.number[place])
    return address_of(found), name_of(found).capitalize()


def _facts(study: StudyCache, trial: Trial) -> list[tuple[str, str, str]]:
    found = [
        (
            "State",
            study.state_of(trial.number, trial.state),
            f"rung {trial.rung}" if trial.rung is not None else "no rung has ended",
        )
    ]
    found += [(labelled(name), short(value), "") for name, value in trial.values.items()]
    if trial.parameters is not None and "parameters" not in trial.values:
        found.append(("Parameters", short(trial.parameters), ""))
    row = study.table.rows_of([trial.number])
    if len(row):
        found.append(("Trained", duration(float(study.table.seconds[row[0]])), plural(trial.steps or 0, "step")))
    arm = "" if trial.arm == "main" else f"arm {trial.arm}"
    found.append(("Origin", trial.operator or "unknown", arm or trial.purpose))
    return found


def _rungs(study: StudyCache, number: int) -> Table:
    units = study.reader.units(study.study.id, number)
    names = list(dict.fromkeys(name for unit in units for name in unit.values or ()))
    rows = [
        {
            "kind": "probe" if unit.kind == "probe" else "training",
            "rung": unit.rung,
            "steps": unit.steps,
            "state": unit.state.value,
            "attempts": unit.attempt,
            "seconds": unit.seconds,
            "device": unit.device,
            "host": (unit.owner or "").removeprefix("ask/").partition("/")[0],
            "failure": unit.error_kind,
            **(unit.values or {}),
        }
        for unit in units
    ]
    own = [Column(name, labelled(name), "number") for name in names]
    return Table(columns=[*RUNGS[:4], *own, *RUNGS[4:]], rows=rows, empty="This trial has no unit.")


def _value(study: StudyCache, number: int) -> float | None:
    row = study.table.rows_of([number])
    name = study.study.objectives[0]["name"] if study.study.objectives else ""
    found = float(study.table.values[name][row[0]]) if len(row) and name in study.table.values else float("nan")
    return found if np.isfinite(found) else None


def family_table(study: StudyCache, trial: Trial, family: Lineage) -> Table:
    """The trial, its ancestors and its children, each with its differences from its first parent."""
    ancestors = family.ancestors(trial.number, RELATIVES)
    searched = set(study.table.number[study.table.texts["purpose"] == SEARCH].tolist())
    children = [number for number in family.children.get(trial.number, []) if number in searched]
    many, children = len(children), sorted(children, key=partial(_rank, study))[:RELATIVES]
    shown = [*reversed(ancestors), trial.number, *children]
    parents = {number: family.parents(number) for number in shown}
    known = {each for number in shown for each in (number, *parents[number][:1])}
    points = study.reader.choices(study.study.id, sorted(known))
    rows = []
    for number in shown:
        first = parents[number][0] if parents[number] else None
        differences = changed(points.get(first, {}), points.get(number, {})) if first is not None else []
        rows.append(
            {
                "trial": number,
                "final": final_of(number),
                "relation": "this trial"
                if number == trial.number
                else "child"
                if number in children
                else "parent"
                if number in parents[trial.number]
                else "ancestor",
                "value": _value(study, number),
                "origin": _origin(family, number),
                "changes": "; ".join(change_text(each) for each in differences[:6])
                + (f"; and {len(differences) - 6} more" if len(differences) > 6 else ""),
            }
        )
    links = [f"{study.address}/trials/{address_of(number)}" for number in shown]
    note = f"The {RELATIVES} best of {many:,} children." if many > RELATIVES else ""
    if len(ancestors) == RELATIVES:
        note = f"The {RELATIVES} nearest ancestors. {note}".strip()
    return Table(columns=FAMILY, rows=rows, links=links, note=note)


def _rank(study: StudyCache, number: int) -> float:
    """A number by which trials are sorted, the best first."""
    value, sign = _value(study, number), next(iter(study.table.signs.values()), 1)
    return np.inf if value is None else sign * value


def _origin(family: Lineage, number: int) -> str:
    origin = family.origins.get(number)
    if origin is None:
        return ""
    parents = " and ".join(map(str, origin.parents[:3]))
    return f"{origin.operator} of {parents}" if parents else origin.operator


def change_text(change: Any) -> str:
    """A change as text, with the short name of the hole: times: 2 → 3."""
    before, after = ("none" if each is None else each for each in (change.before, change.after))
    return f"{hole_name(change.path)}: {before} → {after}"


def hole_name(path: str) -> str:
    """A path without its common parts, cut if it is long: body[1].residual.of[0].gru becomes body[1].gru."""
    return cut(path.replace(".residual.of[0]", "").replace(".residual.", "."), 48)


def _neighbours(study: StudyCache, trial: Trial) -> Table:
    """The trials whose points differ in the smallest share of holes, among those that were trained longest."""
    table = study.table
    rows = np.flatnonzero(table.longest)
    own = table.steps[rows] if len(rows) else rows
    rows = rows[np.argsort(-own, kind="stable")][:COMPARED] if len(rows) > COMPARED else rows
    points = study.remember(
        ("points", len(rows)), lambda: study.reader.choices(study.study.id, table.number[rows].tolist())
    )
    others = ((number, point) for number, point in points.items() if number != trial.number)
    apart = sorted((distance(trial.choices or {}, point), number) for number, point in others)[:NEIGHBOURS]
    found = [{"trial": number, "distance": far, "value": _value(study, number)} for far, number in apart]
    links = [f"{study.address}/trials/{row['trial']}" for row in found]
    return Table(columns=NEAR, rows=found, links=links, empty="No other trial was trained yet.")


def _served(trial: Trial) -> Table:
    rows = evidence.served({name: found for name, found in (trial.evidence or {}).items() if "served" in found})
    columns = [Column(name, name.title()) for name in ("operation", "problem", "choice", "why")]
    return Table(columns=columns, rows=rows, empty="No operation used a tuned choice.")
