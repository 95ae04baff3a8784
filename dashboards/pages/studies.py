"""The list of studies, in all databases that are shown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from dashboards.analysis.history import best_so_far
from dashboards.server.sources import Source, StudyCache, open_or_none
from dashboards.view import Ask, Column, View, crumbs, paged
from nas import report
from nas.report import activity
from nas.report.activity import Activity, UnitProgress
from nas.store.records import SEARCH, TrialState

WIDTH, HEIGHT = 96, 22  # pixels of the line in a cell
COLUMNS = (
    Column("study", "Study", sorts=True),
    Column("database", "Database", sorts=True),
    Column("state", "State", "state", sorts=True),
    Column("trials", "Trials", "number", sorts=True),
    Column("budget", "Of", "number"),
    Column("left", "Time left", "seconds"),
    Column("best", "Best", "number"),
    Column("objective", "Objective", "quantity"),
    Column("history", "Best so far", "sparkline"),
    Column("front", "On the front", "number", sorts=True),
    Column("workers", "Workers", "number", sorts=True),
    Column("failures", "Failures", "number", sorts=True),
    Column("created", "Created", sorts=True),
)


def view(ask: Ask) -> View:
    """All studies, with search and sort."""
    wanted = ask.parameters.text("q").casefold()
    rows, problems = [], []
    for source in ask.sources.all():
        found, problem = open_or_none(partial(_rows, source, wanted))
        rows += found or []
        problems += [f"{source.shown}: {problem}"] if problem else []
    reading = [row["study"] for row in rows if row.pop("is_reading", False)]
    empty = "No study matches." if wanted else "No study yet. `make search` or `nas search FILE` starts one."
    table = paged(ask.parameters, COLUMNS, rows, link=lambda row: row["address"], empty=empty, sort="-created")
    return View(
        template="studies.html",
        title="Studies",
        values={
            "q": ask.parameters.text("q"),
            "problems": problems,
            "databases": [source.shown for source in ask.sources.all()],
            "reading": reading,
        },
        tables={"studies": table},
        is_live=True,
    )


def _rows(source: Source, wanted: str) -> list[dict[str, Any]]:
    rows = []
    for study in source.studies():
        if wanted in study.study.name.casefold():
            row, problem = open_or_none(partial(_row, study))
            rows.append(
                row or {"study": study.study.name, "database": source.key, "state": f"cannot be read: {problem}"}
            )
            rows[-1].setdefault("address", study.address)
    return rows


def _row(study: StudyCache) -> dict[str, Any]:
    """The row of a study. While a large study is read for the first time: only what a fast query gives."""
    if study.is_fast:
        return dict(study.remember("row", partial(summary, study), of=study.look()))
    return known_at_once(study) | {"is_reading": True}


def summary(study: StudyCache) -> dict[str, Any]:
    """The complete row of a study. Reads the trials. Raises StoreError."""
    table, of = study.table, study.study
    objective = of.objectives[0]["name"] if of.objectives else ""
    growth = best_so_far(table, objective) if objective in table.values else None
    found = _counted(study, Counter(zip(table.texts["purpose"].tolist(), table.texts["state"].tolist())), study.units)
    running = found["state"] in ("searching", "in the finals")
    left, _ = open_or_none(lambda: report.eta(study.reader, of, units=study.units)) if running else (None, "")
    return found | {
        "left": left.seconds if left else None,
        "best": float(growth.values[-1]) if growth is not None and len(growth.values) else None,
        "history": sparkline(growth.values.tolist()) if growth is not None else None,
        "front": len(table.front(list(table.signs))) if table.signs else 0,
    }


def known_at_once(study: StudyCache) -> dict[str, Any]:
    """The part of a row that is known without reading the trials. Raises StoreError."""
    counts = {(each.purpose, each.state.value): each.trials for each in study.reader.counts(study.study.id)}
    return _counted(study, counts, activity.progress(study.reader, study.study))


def reading(ask: Ask) -> View:
    """The page that is shown while a large study is read for the first time. It reloads itself."""
    known = known_at_once(ask.of)
    values = {name: known[name] for name in ("state", "trials")}
    return View(template="reading.html", title=ask.of.study.name, values=values, crumbs=crumbs(ask.of)[:-1])


def _counted(study: StudyCache, counts: Mapping[tuple[str, str], int], units: list[UnitProgress]) -> dict[str, Any]:
    of = study.study
    budget = of.config.get("budget") if isinstance(of.config, dict) else None
    return {
        "study": of.name,
        "database": study.source.key,
        "state": activity.state_of_study(of, counts, units),
        "trials": sum(count for (purpose, _), count in counts.items() if purpose == SEARCH),
        "budget": budget.get("trials") if isinstance(budget, dict) else None,
        "left": None,
        "best": None,
        "objective": of.objectives[0]["name"] if of.objectives else "",
        "history": None,
        "front": None,
        "workers": len({unit.owner for unit in units if unit.activity is Activity.RUNNING}),
        "failures": sum(count for (_, state), count in counts.items() if state == TrialState.FAILED),
        "created": f"{of.created_at:%Y-%m-%d %H:%M}",
        "address": study.address,
    }


def sparkline(values: Sequence[float]) -> str | None:
    """The path of a line through the values, in a box of 96 x 22 pixels; None for fewer than two."""
    if len(values) < 2:
        return None
    low, high = min(values), max(values)
    span = (high - low) or 1.0
    step = (WIDTH - 4) / (len(values) - 1)
    points = [f"{2 + i * step:.1f} {2 + (high - value) / span * (HEIGHT - 4):.1f}" for i, value in enumerate(values)]
    return "M" + "L".join(points)
