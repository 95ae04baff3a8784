"""One study: its state, front, history, importance of holes, failures, and all its trials."""

from __future__ import annotations

from typing import Any

import numpy as np
import yaml

from dashboards.analysis.tabulated import Tabulated
from dashboards.figures.figure import labelled
from dashboards.figures.front import front_figure
from dashboards.figures.holes import importance_figure
from dashboards.figures.progress import (
    AXES,
    curves_figure,
    history_figure,
    hypervolume_figure,
    rungs_figure,
    verdict_figure,
)
from dashboards.pages.space import holes_of, parallel_of
from dashboards.pages.trials import trials_table
from dashboards.server.sources import StudyCache
from dashboards.view import Ask, Column, Table, View, crumbs, paged
from nas import report
from nas.report.overview import Status, eta_text, worker_text
from nas.report.tables import duration, reason, short
from nas.store.records import SEARCH
from searchspace.wording import plural

MOST_RUNGS = 20_000  # results of rungs that are read, at most
CURVES = 8  # of the best trials
HIDDEN = ("task_source", "vocabulary", "data_facts", "learned", "step_tokens")
FAILURES = (
    *(Column("kind", "Kind"), Column("trials", "Trials", "number")),
    *(Column("first", "First", "number"), Column("message", "Message of the first")),
)
UNITS = (
    *(Column("unit", "Unit"), Column("state", "State", "state"), Column("step", "Step", "number")),
    *(Column("steps", "Of", "number"), Column("loss", "Loss", "number"), Column("rate", "Tokens/s", "number")),
    Column("worker", "Worker"),
)


def view(ask: Ask) -> View:
    """The page of a study."""
    study = ask.of
    table = study.table
    status = status_of(study)
    names = [each["name"] for each in study.study.objectives]
    figures = _figures(ask, status, names) if names else {}
    tables = {"trials": trials_table(ask), "units": _units(ask), "failures": _failures(ask)}
    if status.verdict:
        tables["finals"] = _finals(status)
    return View(
        template="study.html",
        title=study.study.name,
        values={
            "study": study.study.name,
            "status": status.to_dict(),
            "sentences": [*status.ranking.sentences(), *(each.sentence() for each in status.probes), *status.pending],
            "controls": [*(each.sentence() for each in status.controls), *status.uncompared],
            "verdict": status.verdict.sentence if status.verdict else None,
            "notes": status.verdict.notes() if status.verdict else [],
            "search_file": study.remember("search file", lambda: search_file(study.study.config), of=study.version),
        },
        shown={
            "facts": facts(study, status),
            "phase": status.phase,
            "said": _said(status),
            "done": progress_of(status),
            "workers": [worker_text(owner) for owner in status.owners],
            "objectives": names,
            "quantities": table.quantities or names,
            "labels": {name: labelled(name) for name in [*names, *table.quantities]},
            "axes": AXES,
            "filters": _filters(ask, [row["kind"] for row in tables["failures"].rows]),
            "address": study.address,
        },
        tables=tables,
        figures=figures,
        crumbs=crumbs(study)[:-1],
        is_live=True,
    )


def status_of(study: StudyCache) -> Status:
    """The current status of the study; read once for all its pages. Raises StoreError."""
    return study.remember("status", lambda: report.status(study.reader, study.study), of=study.version)


def _figures(ask: Ask, status: Status, names: list[str]) -> dict[str, Any]:
    study, parameters, table = ask.of, ask.parameters, ask.of.table
    y = parameters.choice("y", names, names[0])
    across = table.quantities or names
    x = parameters.choice("x", across, across[1] if len(across) > 1 else across[0])
    shade = parameters.choice("shade", ["none", *across], "none")
    axis = parameters.choice("axis", AXES, "trials")
    finals = status.verdict
    wanted = {
        "shade": "" if shade == "none" else shade,
        "log": tuple(
            name for side, name in (("log_x", x), ("log_y", y)) if parameters.flag(side, _is_wide(table, name))
        ),
        "zoom": parameters.zoom("front"),
        "dominated": parameters.flag("dominated", True),
        "finalists": tuple(each.trial for each in finals.entrants if each.role != "baseline") if finals else (),
        "winner": finals.winner.trial if finals else None,
    }
    found: dict[str, Any] = {
        "front": study.remember(
            ("front", x, y, *wanted.values()),
            lambda: front_figure(table, x, y, address=study.address, **wanted),  # type: ignore[arg-type]
        ),
        "history": study.remember(("history", y, axis), lambda: history_figure(table, y, axis)),
    }
    if len(names) > 1:
        found["hypervolume"] = study.remember(("hypervolume", axis), lambda: hypervolume_figure(table, names, axis))
    rungs = study.remember(("rungs", y), lambda: study.reader.rungs(study.study.id, y, MOST_RUNGS))
    if study.remember(("rung steps", y), lambda: len({steps for _, _, steps, _, _ in rungs})) > 1:
        found["rungs"] = study.remember(("rung figure", y), lambda: rungs_figure(rungs, y, study.address))
    found["importance"] = study.remember(("importance", y), lambda: importance_figure(holes_of(study, y).important, y))
    found["parallel"] = study.remember(("parallel", y), lambda: parallel_of(study, y))
    found["curves"] = study.remember(("curves", y), lambda: _curves(study, y))
    if finals and finals.comparison:
        found["verdict"] = verdict_figure(finals)
    return found


def _is_wide(table: Any, name: str) -> bool:
    """Whether a logarithmic axis is better: all values are positive and span more than a factor of 8."""
    values = table.column(name)[table.searched]
    return bool(len(values)) and bool(values.min() > 0) and bool(values.max() / values.min() > 8)


def _curves(study: StudyCache, objective: str) -> Any:
    table = study.table
    rows = np.flatnonzero(table.longest)
    order = rows[np.argsort(table.signs[objective] * table.values[objective][rows], kind="stable")][:CURVES]
    numbers = table.number[order].tolist()
    curves = {f"Trial {number}": study.reader.curve(study.study.id, number) for number in numbers}
    title = f"Learning curves of the best {plural(len(curves), 'trial')}" if curves else "Learning curves"
    return curves_figure(curves, title)


def facts(study: StudyCache, status: Status) -> list[tuple[str, str, str]]:
    """(name, value, detail) of each number at the top of the page."""
    started, planned = sum(status.states.values()), status.budget
    states = ", ".join(f"{count:,} {name}" for name, count in status.shown_states.items() if count)
    found = [("Trials", f"{started:,}" + (f" of {planned:,}" if planned else ""), states)]
    if status.best:
        name = study.study.objectives[0]["name"]
        detail = f"{labelled(name)}, trial {status.best.number}"
        found.append(("Best", short(status.best.values[name]) if name in status.best.values else "?", detail))
    found.append(("Pareto front", f"{status.front:,}", f"of {plural(len(study.study.objectives), 'objective')}"))
    failed = sum(len(each) for each in status.failures.values())
    found.append(("Failures", f"{failed:,}", ", ".join(status.failures) or "none"))
    found.append(("Trained", duration(status.trained_seconds), "over all workers"))
    if status.eta:
        found.append(
            ("Time left", eta_text(status.eta).removeprefix("about ").removesuffix(" left"), "at the pace so far")
        )
    return found


def progress_of(status: Status) -> tuple[float, str] | None:
    """(share from 0 to 1, text) of the budget that is used; None if the budget has no limit."""
    started = sum(status.states.values())
    if status.budget:
        return min(1.0, started / status.budget), f"{started:,} of {status.budget:,} trials started"
    share = status.spending.share
    return None if share is None else (min(1.0, share), f"{share:.0%} of the budget is spent")


def _said(status: Status) -> list[str]:
    """The first sentence of the verdict, and the rest if there is more; empty without a verdict."""
    if status.verdict is None:
        return []
    first, stop, rest = status.verdict.sentence.partition(". ")
    return [first + stop.strip(), rest] if rest else [first]


def _filters(ask: Ask, kinds: list[str]) -> list[tuple[str, str, list[tuple[str, str]], str]]:
    """(parameter, name, [(value, name)], the chosen value) of the filters that are useful for this study."""
    arms = [(arm, arm) for arm in ask.of.table.words("arm")]
    own = [(kind, kind) for kind in kinds]
    found = [("arm", "Arm", arms if len(arms) > 1 else []), ("failure", "Failure", own)]
    return [
        (name, label, [("any", "any"), *some], ask.parameters.choice(name, ["any", *dict(some)], "any"))
        for name, label, some in found
        if some
    ]


def _units(ask: Ask) -> Table:
    rows = [
        {
            "unit": unit.name,
            "state": unit.activity.value,
            "step": unit.step,
            "steps": unit.steps,
            "loss": unit.loss,
            "rate": unit.tokens_per_second and round(unit.tokens_per_second),
            "worker": (unit.owner or "").removeprefix("ask/").partition("/")[0],
        }
        for unit in ask.of.units
    ]
    return paged(ask.parameters, UNITS, rows, empty="Every unit has ended.", suffix="_units")


def _failures(ask: Ask) -> Table:
    """The failures by kind, with the message of the first failed trial."""
    study, table = ask.of, ask.of.table
    rows = study.remember("failures", lambda: _failure_kinds(study, table))
    others = dict.fromkeys(("state", "purpose", "front", "arm", "q", "page"))
    links = [f"{ask.parameters.changed(**others, failure=each['kind'])}#trials" for each in rows]
    return Table(columns=FAILURES, rows=rows, links=links, empty="No trial has failed.")


def _failure_kinds(study: StudyCache, table: Tabulated) -> list[dict[str, Any]]:
    failed = np.flatnonzero((table.texts["state"] == "failed") & (table.texts["purpose"] == SEARCH))
    kinds: dict[str, list[int]] = {}
    for row in failed:
        kinds.setdefault(str(table.texts["error_kind"][row]), []).append(int(table.number[row]))
    firsts = {kind: numbers[0] for kind, numbers in kinds.items()}
    texts = study.reader.errors(study.study.id, list(firsts.values())) if firsts else {}
    return [
        {"kind": kind, "trials": len(numbers), "first": firsts[kind], "message": reason(texts.get(firsts[kind], ""))}
        for kind, numbers in sorted(kinds.items(), key=lambda item: -len(item[1]))
    ]


def _finals(status: Status) -> Table:
    assert status.verdict is not None
    rows = status.verdict.rows()
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = [Column(name, labelled(name), "text" if name == "entrant" else "number") for name in names]
    return Table(columns=columns, rows=rows)


def search_file(config: Any) -> str:
    """The stored search file of a study, as YAML."""
    shown = (
        {name: value for name, value in config.items() if name not in HIDDEN} if isinstance(config, dict) else config
    )
    return yaml.dump(shown, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)


class _Dumper(yaml.SafeDumper):
    """Writes long texts as blocks."""


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(str, _text)
