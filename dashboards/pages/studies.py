"""The list of studies, in all databases that are shown."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

from dashboards.analysis.history import best_so_far
from dashboards.figures.sparkline import sparkline
from dashboards.pages.asked import Ask
from dashboards.server.sources import Source, StudyCache, open_or_none
from dashboards.view import Column, View, paged
from nas import report
from nas.report import activity
from nas.report.activity import Activity
from nas.store.records import SEARCH

COLUMNS = (
    Column("study", "Study", sorts=True),
    Column("database", "Database", sorts=True),
    Column("state", "State", "state", sorts=True),
    Column("trials", "Trials", "number", sorts=True),
    Column("budget", "Of", "number"),
    Column("left", "Time left", "seconds"),
    Column("best", "Best", "number"),
    Column("objective", "Objective"),
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
    empty = "No study matches." if wanted else "No study yet. `make search` or `nas search FILE` starts one."
    table = paged(ask.parameters, COLUMNS, rows, link=lambda row: row["address"], empty=empty, sort="-created")
    return View(
        template="studies.html",
        title="Studies",
        values={"q": ask.parameters.text("q"), "problems": problems, "databases": [s.shown for s in ask.sources.all()]},
        tables={"studies": table},
        is_live=True,
    )


def _rows(source: Source, wanted: str) -> list[dict[str, Any]]:
    rows = []
    for study in source.studies():
        if wanted in study.study.name.casefold():
            row, problem = open_or_none(partial(study.remember, "row", partial(summary, study)))
            rows.append(
                row or {"study": study.study.name, "database": source.key, "state": f"cannot be read: {problem}"}
            )
            rows[-1].setdefault("address", study.address)
    return rows


def summary(study: StudyCache) -> dict[str, Any]:
    """A study in one row."""
    table, of = study.table, study.study
    objective = of.objectives[0] if of.objectives else {"name": "", "direction": "minimize"}
    growth = best_so_far(table, objective["name"]) if objective["name"] in table.values else None
    in_search = table.texts["purpose"] == SEARCH
    state = state_of(study)
    budget = of.config.get("budget") if isinstance(of.config, dict) else None
    running = state in ("searching", "in the finals")
    left, _ = open_or_none(lambda: report.eta(study.reader, of, units=study.units)) if running else (None, "")
    return {
        "study": of.name,
        "database": study.source.key,
        "state": state,
        "trials": int(in_search.sum()),
        "budget": budget.get("trials") if isinstance(budget, dict) else None,
        "left": left.seconds if left else None,
        "best": float(growth.values[-1]) if growth is not None and len(growth.values) else None,
        "objective": objective["name"],
        "history": sparkline(growth.values.tolist()) if growth is not None else None,
        "front": len(table.front(list(table.signs))) if table.signs else 0,
        "workers": len({unit.owner for unit in study.units if unit.activity is Activity.RUNNING}),
        "failures": Counter(table.texts["state"].tolist())["failed"],
        "created": f"{of.created_at:%Y-%m-%d %H:%M}",
        "address": study.address,
    }


def state_of(study: StudyCache) -> str:
    """What happens to a study, in a few words."""
    units, table = study.units, study.table
    if units:
        doing = activity.of_all(unit.activity for unit in units)
    elif (table.texts["state"] == "running").any():
        doing = Activity.PAUSED
    else:
        return "ended" if len(table) else "not started"
    if doing is Activity.RUNNING:
        return "in the finals" if (table.texts["purpose"] != SEARCH).any() else "searching"
    return doing.value
