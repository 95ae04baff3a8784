"""Latency tables: measured latencies of architectures, the predictions from their pieces, and the pieces."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from dashboards.figures.figure import QUIET, Axis, Figure, Series
from dashboards.pages.shading import Conditions
from dashboards.server.sources import Source, open_or_none
from dashboards.view import Ask, Column, Table, View, paged
from nas.latency import stored
from nas.latency.stored import Compared
from nas.report.tables import short
from nas.store import Measurement

PREDICTIONS = (
    *(Column("architecture", "Architecture", "code"), Column("measured", "Measured (ms)", "number", sorts=True)),
    *(Column("low", "Low (ms)", "number"), Column("high", "High (ms)", "number")),
    *(Column("predicted", "Predicted (ms)", "number", sorts=True), Column("error", "Error (%)", "percent", sorts=True)),
    *(Column("sum", "Sum of pieces (ms)", "number"), Column("conditions", "Conditions", "long")),
    Column("database", "Database"),
)
PIECES = (
    *(Column("piece", "Piece", sorts=True), Column("first", "First call (ms)", "number", sorts=True)),
    *(Column("low", "Low (ms)", "number"), Column("high", "High (ms)", "number")),
    *(Column("later", "Later calls (ms)", "number", sorts=True), Column("options", "Options", "long")),
    *(Column("phase", "Phase", sorts=True), Column("length", "Length", "number", sorts=True)),
    *(Column("batch", "Batch", "number"), Column("threads", "Threads", "number")),
    *(Column("device", "Device", "word"), Column("database", "Database")),
)
SYMBOLS = ("circle", "square", "diamond", "triangle", "star")
NOTHING = (
    "No architecture was measured both as a whole and by its pieces. A search whose objective `latency` may predict "
    "(`method: auto` or `predicted`) measures some architectures both ways before it starts."
)


def view(ask: Ask) -> View:
    """The page of the latency tables."""
    found: list[dict[str, Any]] = []
    pieces: list[dict[str, Any]] = []
    problems: list[str] = []
    for source in ask.sources.all():
        rows, problem = open_or_none(lambda source=source: (_predictions(source), _pieces(source)))  # type: ignore[misc]
        found += rows[0] if rows else []
        pieces += rows[1] if rows else []
        problems += [problem] if problem else []
    return View(
        template="latency.html",
        title="Latency",
        values={"problems": problems, "summary": _summary(found)},
        tables={
            "predictions": paged(ask.parameters, PREDICTIONS, found, empty=NOTHING),
            "pieces": _table(ask, pieces),
        },
        figures={"comparison": _figure(found)},
        crumbs=[("Tuning", f"{ask.sources.root}/tuning")],
    )


def _table(ask: Ask, pieces: Sequence[Mapping[str, Any]]) -> Table:
    empty = (
        "No block was timed alone yet. A search whose objective `latency` may predict times the blocks of its space."
    )
    return paged(ask.parameters, PIECES, pieces, empty=empty, sort="-first", suffix="_pieces")


def _predictions(source: Source) -> list[dict[str, Any]]:
    reader = source.reader
    names = _names(source)
    found = stored.compared(reader.measurements(stored.MODEL), reader.measurements(stored.SUM))
    return [_prediction(source, names, each) for each in found]


def _prediction(source: Source, names: Mapping[str, str], each: Compared) -> dict[str, Any]:
    where = Conditions(device=each.device, name=names.get(each.device, each.device[:12]), values=each.conditions)
    return {
        "architecture": each.architecture[:12],
        "conditions": where.text,
        "measured": each.measured,
        "low": each.low,
        "high": each.high,
        "predicted": each.predicted,
        "error": None if each.error is None else 100 * each.error,
        "sum": each.sum,
        "database": source.key,
    }


def _pieces(source: Source) -> list[dict[str, Any]]:
    """The newest measurement of each piece."""
    names = _names(source)
    rows = {(row.device, row.problem): row for row in source.reader.measurements(stored.PIECE) if row.milliseconds}
    return [_piece(source, names, row) for row in rows.values()]


def _piece(source: Source, names: Mapping[str, str], row: Measurement) -> dict[str, Any]:
    problem = json.loads(row.problem)
    name, options = stored.described(problem)
    first, later = stored.milliseconds(row)
    return {
        "piece": name,
        "options": options,
        **{key: problem.get(key) for key in ("phase", "length", "batch", "threads")},
        "first": first,
        "later": later,
        "low": row.low,
        "high": row.high,
        "device": names.get(row.device, row.device[:12]),
        "database": source.key,
    }


def _names(source: Source) -> dict[str, str]:
    return {key: str(found.get("name") or key) for key, found in source.reader.devices().items()}


def _summary(found: Sequence[Mapping[str, Any]]) -> str:
    errors = [abs(each["error"]) for each in found if each["error"] is not None]
    if not errors:
        return ""
    return (
        f"Predictions are off by {statistics.median(errors):.1f} % (median) and at most {max(errors):.1f} %, over "
        f"{len(errors)} measured architectures."
    )


def _figure(found: Sequence[Mapping[str, Any]]) -> Figure:
    """Predicted against measured milliseconds, with a line where they are equal."""
    known = [each for each in found if each["predicted"] is not None]
    series = []
    for place, where in enumerate(dict.fromkeys(each["conditions"] for each in known)):
        own = [each for each in known if each["conditions"] == where]
        series.append(
            Series(
                name=where,
                x=[each["measured"] for each in own],
                y=[each["predicted"] for each in own],
                colour=place,
                symbol=SYMBOLS[place % len(SYMBOLS)],
                size=8,
                text=[f"{each['architecture']}: {short(each['error'])} % off" for each in own],
            )
        )
    ends = [value for each in known for value in (each["measured"], each["predicted"])]
    line = [min(ends), max(ends)] if ends else []
    equal = Series(name="Equal", x=line, y=line, mark="line", colour=QUIET, dashed=True)
    return Figure(
        title="Predicted against measured latency",
        x=Axis(label="Measured (ms)", log=True),
        y=Axis(label="Predicted (ms)", log=True),
        series=(equal, *series) if known else (),
        note="Each prediction is the sum of the measured pieces, corrected by the median ratio of the other "
        "architectures under the same conditions. It does not use the measurement of the architecture itself.",
        empty="A prediction needs three architectures that were measured as a whole and by their pieces.",
    )
