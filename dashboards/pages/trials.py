"""The table of the trials of a study, filtered, sorted and paged over columns of numbers."""

from __future__ import annotations

import re

import numpy as np

from dashboards.analysis.tabulated import Mask, Tabulated
from dashboards.figures.figure import labelled
from dashboards.pages.compare import MOST
from dashboards.view import MOST_PER_PAGE, PER_PAGE, Ask, Column, Table, column_of
from nas.numbers import address_of, number_of
from nas.report.trials import BASELINE

STATES = ("any", "waiting", "running", "complete", "stopped", "failed")


def trials_table(ask: Ask) -> Table:
    """One page of the trials that the address asks for. Raises BadRequest for an invalid parameter."""
    parameters, table = ask.parameters, ask.of.table
    names = list(table.values)
    keys = ["trial", *names, "rung", "steps", "parameters", "seconds"]
    asked = parameters.choice("sort", [*keys, *(f"-{key}" for key in keys)], "trial")
    key, descending = column_of(asked, keys)
    rows = np.flatnonzero(_filtered(ask, table))
    column = _column(table, key)[rows]
    known = np.isfinite(column)
    order = np.argsort(-column[known] if descending else column[known], kind="stable")
    rows = np.concatenate([rows[known][order], rows[~known]])
    per_page = parameters.whole("per", PER_PAGE, 1, MOST_PER_PAGE)
    page = parameters.whole("page", 1, 1, 10**9)
    shown = [table.row(int(row)) for row in rows[(page - 1) * per_page : page * per_page]]
    for row in shown:
        row["state"] = ask.of.state_of(row["trial"], row["state"])
        row["note"] = "baseline" if row["operator"] == BASELINE else row["failure"]
    several = len(table.words("arm")) > 1
    columns = [
        Column("trial", "Trial", "number", sorts=True),
        Column("state", "State", "state"),
        *(Column(name, labelled(name), "number", sorts=True) for name in names),
        *(Column("rung", "Rung", "number", sorts=True), Column("steps", "Steps", "number", sorts=True)),
        *([] if "parameters" in names else [Column("parameters", "Parameters", "number", sorts=True)]),
        Column("seconds", "Time", "seconds", sorts=True),
        *([Column("arm", "Arm", "word")] if several else []),
        *(Column("operator", "Origin", "word"), Column("architecture", "Architecture", "code"), Column("note", "Note")),
    ]
    return Table(
        columns=columns,
        rows=shown,
        total=len(rows),
        page=page,
        per_page=per_page,
        sort=key,
        descending=descending,
        links=[f"{ask.of.address}/trials/{address_of(row['trial'])}" for row in shown],
        empty="No trial matches." if len(table) else "No trial yet.",
        chosen=parameters.trials("trials", MOST),
    )


def _column(table: Tabulated, key: str) -> np.ndarray:
    if key in table.values:
        return table.values[key]
    if key == "trial":
        return table.number.astype(float)
    if key == "parameters":
        return table.numbers["parameters"]
    if key == "seconds":
        return table.seconds
    return np.where(table.rung < 0, np.nan, getattr(table, key).astype(float))


def _filtered(ask: Ask, table: Tabulated) -> Mask:
    parameters = ask.parameters
    state = parameters.choice("state", STATES, "any")
    arm = parameters.choice("arm", ["any", *table.words("arm")], "any")
    kind = parameters.choice("failure", ["any", *table.words("error_kind")], "any")
    purpose = parameters.choice("purpose", ("any", "search", "final"), "any")
    mask = np.ones(len(table), dtype=bool)
    for name, wanted in (("state", state), ("arm", arm), ("error_kind", kind), ("purpose", purpose)):
        if wanted != "any":
            mask &= table.texts[name] == wanted
    if parameters.flag("front"):
        chosen = np.zeros(len(table), dtype=bool)
        chosen[table.front(list(table.signs))] = True
        mask &= chosen
    if text := parameters.text("q").strip():
        wanted = text.removeprefix("trial ").strip()
        number = number_of(re.sub(r"^final ", "final-", wanted))
        hashes = np.asarray([str(each).startswith(wanted) for each in table.texts["hash"]], dtype=bool)
        mask &= hashes | (table.number == number)
    return mask
