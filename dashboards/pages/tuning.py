"""The results of the tuner: operations, problems and devices; of one problem, configurations and progress."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any
from urllib.parse import urlencode

from dashboards.explorer.process import Unavailable
from dashboards.figures.figure import Axis, Figure, Heat, Series
from dashboards.server.parameters import NotFound
from dashboards.server.sources import Source, open_or_none
from dashboards.view import Ask, Column, Table, View, paged
from nas.latency import stored
from nas.store.measurements import Measured, Measurement

MOST = 100_000  # problems of a database
FORGOTTEN, EVERY = "forgotten", "{}"  # the tuner ends the validity of earlier rows with one of this failure and problem
MOST_BESIDE = 40  # problems in the figure that compares devices: those whose times differ most
WHY = {
    "exact": "it was tuned for this problem",
    "locked": "it was tuned, and the table is locked",
    "near": "it was tuned for the nearest problem",
    "default": "it is the default, and nothing faster was found here",
}
RESOURCES = ("registers", "spills", "shared", "warps")
RESOURCE_COLUMNS = (
    Column("registers", "Registers", "number", sorts=True),
    Column("spills", "Spilled", "number", sorts=True),
    Column("shared", "Shared memory", "bytes", sorts=True),
)
RESOURCE_FIGURES: Mapping[str, tuple[str, str, float, str]] = {
    "registers": (
        "Time against registers",
        "Registers per thread",
        1,
        "If a call launches several kernels, the one with the most registers counts.",
    ),
    "shared": (
        "Time against shared memory",
        "Shared memory per program (KiB)",
        1024,
        "If a call launches several kernels, the one with the most shared memory counts.",
    ),
}
SPILLS = " Triangles spill registers: their threads keep values in memory, because there are too few registers."
UNREPORTED = (
    "No device reported registers and shared memory for this problem. Triton reports them for kernels that it compiles "
    "for a GPU, but not on a CPU or in its interpreter. Earlier versions did not store them. On a machine with a GPU, "
    "`nas tune run OPERATION --again` measures known configurations again."
)
PROBLEMS = (
    *(Column("operation", "Operation", sorts=True), Column("problem", "Problem", "long")),
    *(Column("best", "Best (ms)", "number", sorts=True), Column("count", "Measured", "number", sorts=True)),
    *(Column("failures", "Failed", "number", sorts=True), Column("dtype", "Type", "word")),
    *(Column("device", "Device", "word"), Column("database", "Database")),
)
CONFIGURATIONS = (
    *(Column("implementation", "Implementation", sorts=True), Column("settings", "Configuration", "long")),
    *(Column("milliseconds", "Time (ms)", "number", sorts=True), Column("low", "Low (ms)", "number")),
    *(
        Column("high", "High (ms)", "number"),
        Column("slower", "Times the best", "number"),
        Column("device", "Device", "word"),
    ),
    *RESOURCE_COLUMNS,
    Column("failure", "Failure"),
)


def view(ask: Ask) -> View:
    """The page of the tuner.

    Raises BadRequest for a database that is not shown, NotFound for a problem without measurements.
    """
    sources = {source.key: source for source in ask.sources.all()}
    keys = list(sources)
    rows, problems = [], []
    for source in sources.values():
        found, problem = open_or_none(lambda source=source: _listed(source))  # type: ignore[misc]
        rows += found or []
        problems += [problem] if problem else []
    operation, wanted = ask.parameters.text("operation"), ask.parameters.long_text("problem", 2000)
    tables: dict[str, Table] = {}
    figures: dict[str, Figure | Heat] = {}
    devices: list[tuple[str, str]] = []
    serves = ""
    if operation:
        source = sources[ask.parameters.choice("database", keys, keys[0] if keys else "")]
        measured = [each for each in source.reader.measurements(operation, problem=wanted) if each.failure != FORGOTTEN]
        if not measured:
            raise NotFound(f"{source.key} has no measurement of {operation!r} on this problem.")
        serves = _serves(ask, operation, measured[0].dtype, wanted)
        names = {key: _device(found) for key, found in source.reader.devices().items()}
        newest = _newest(measured)
        tables["configurations"] = _configurations(ask, newest, names)
        figures = {"progress": _progress(measured, names), **_resources(newest, names), **_heats(newest)}
        devices = [(names[key], json.dumps(found)) for key, found in source.reader.devices().items()]
    shown = [row for row in rows if not operation or row["operation"] == operation]
    empty = "No measurements. `nas tune run all` measures on this machine."
    tables["problems"] = paged(ask.parameters, PROBLEMS, shown, link=lambda row: row["address"], empty=empty)
    if sides := _side_by_side(rows, operation):
        figures["devices"] = sides
    return View(
        template="tuning.html",
        title="Tuning",
        values={
            "serves": serves,
            "operation": operation,
            "problem": readable(wanted) if wanted else "",
            "problems": problems,
        },
        shown={"devices": devices},
        tables=tables,
        figures=figures,
    )


def _serves(ask: Ask, operation: str, dtype: str, problem: str) -> str:
    """A sentence: which choice is used for a problem on the machine of the server. Empty if it is unknown."""
    try:
        found = ask.worker.ask(action="serves", operation=operation, dtype=dtype, problem=problem)
    except Unavailable:
        return ""
    if not found:
        return ""
    return f"On this machine, {found['choice']} is used for this problem: {WHY.get(found['why'], found['why'])}."


def _listed(source: Source) -> list[dict[str, Any]]:
    names = {key: _device(found) for key, found in source.reader.devices().items()}
    found = source.reader.measured(MOST, without=stored.OPERATIONS)
    return [_row(source, each, names) for each in found if each.problem != EVERY]


def _row(source: Source, each: Measured, names: Mapping[str, str]) -> dict[str, Any]:
    query = urlencode({"database": source.key, "operation": each.operation, "problem": each.problem})
    return {
        "operation": each.operation,
        "problem": readable(each.problem),
        "dtype": each.dtype,
        "device": names.get(each.device, each.device[:12]),
        "database": source.key,
        "count": each.count,
        "failures": each.failures,
        "best": each.milliseconds,
        "address": f"{source.root}/tuning?{query}",
    }


def readable(problem: str) -> str:
    """A problem as readable text: rows=128 columns=64 causal=true."""
    try:
        data = json.loads(problem)
        pairs = [pair for key in ("sizes", "flags") for pair in data.get(key, ())]
        return " ".join(f"{name}={value}" for name, value in pairs) or problem
    except (ValueError, TypeError, AttributeError):
        return problem


def _device(found: Mapping[str, Any]) -> str:
    return str(found.get("name") or found.get("key", "unknown"))


def _newest(measured: Sequence[Measurement]) -> list[Measurement]:
    """The newest measurement of each configuration on each device."""
    return list({(each.device, each.implementation, each.configuration): each for each in measured}.values())


def _configurations(ask: Ask, newest: Sequence[Measurement], names: Mapping[str, str]) -> Table:
    best: dict[str, float] = {}
    for each in newest:
        if each.milliseconds is not None:
            best[each.device] = min(each.milliseconds, best.get(each.device, each.milliseconds))
    rows = [
        {
            "implementation": each.implementation,
            "configuration": each.configuration,
            "settings": " ".join(f"{name}={value}" for name, value in _settings(each.configuration).items()),
            "milliseconds": each.milliseconds,
            "low": each.low,
            "high": each.high,
            "slower": each.milliseconds / best[each.device] if each.milliseconds and best[each.device] else None,
            "device": names.get(each.device, each.device[:12]),
            **dict.fromkeys(RESOURCES) | _used(each),
            "failure": f"{each.failure}: {each.message or ''}"[:300] if each.failure else None,
        }
        for each in newest
    ]
    known = {name for name in RESOURCES if any(row[name] is not None for row in rows)}
    columns = [each for each in CONFIGURATIONS if each.key not in RESOURCES or each.key in known]
    return paged(ask.parameters, columns, rows, sort="milliseconds", suffix="_configurations")


def _progress(measured: Sequence[Measurement], names: Mapping[str, str]) -> Figure:
    """The measurements in their order, and the best so far on each device."""
    series = []
    for place, device in enumerate(dict.fromkeys(each.device for each in measured)):
        own = [each for each in measured if each.device == device and each.milliseconds]
        values = [each.milliseconds or 0.0 for each in own]
        lowest = list(accumulate(values, min))
        name = names.get(device, device[:12])
        xs = list(range(1, len(own) + 1))
        series.append(Series(name=f"Best so far, {name}", x=xs, y=lowest, mark="steps", colour=place))
        texts = [f"{each.implementation} {each.configuration}" for each in own]
        series.append(Series(name=name, x=xs, y=values, colour=place + 4, text=texts, size=5))
    return Figure(
        title="Progress of tuning",
        x=Axis(label="Measurement"),
        y=Axis(label="Milliseconds", log=True),
        series=tuple(series),
        empty="No configuration ran without a failure.",
    )


def _heats(newest: Sequence[Measurement]) -> dict[str, Heat]:
    """For each implementation with at least two parameters: the lowest time by the two parameters with most values."""
    found: dict[str, Heat] = {}
    grouped: dict[str, list[tuple[dict[str, Any], float]]] = {}
    for each in newest:
        settings = _settings(each.configuration)
        if each.milliseconds is not None and len(settings) > 1:
            grouped.setdefault(each.implementation, []).append((settings, each.milliseconds))
    for number, (implementation, pairs) in enumerate(grouped.items()):
        values = {name: sorted({repr(s.get(name)) for s, _ in pairs}) for name in pairs[0][0]}
        names = sorted(values, key=lambda name: -len(values[name]))[:2]
        if len(names) == 2 and all(len(values[name]) > 1 for name in names):
            found[f"heat{number}"] = _heat(implementation, pairs, names)
    return found


def _heat(implementation: str, pairs: Sequence[tuple[dict[str, Any], float]], names: Sequence[str]) -> Heat:
    x, y = names
    columns, rows = (sorted({s.get(name) for s, _ in pairs}, key=lambda v: (str(type(v)), v)) for name in (x, y))
    z: list[list[float | None]] = [[None] * len(columns) for _ in rows]
    for settings, value in pairs:
        i, j = rows.index(settings.get(y)), columns.index(settings.get(x))
        known = z[i][j]
        z[i][j] = value if known is None else min(known, value)
    return Heat(
        title=f"{implementation}: lowest time by {x} and {y}",
        x=Axis(label=x, categories=tuple(map(str, columns))),
        y=Axis(label=y, categories=tuple(f"{y}={value}" for value in rows)),
        z=z,
        label="ms",
        note="The lowest time over all other parameters.",
    )


def _settings(configuration: str) -> dict[str, Any]:
    try:
        found = json.loads(configuration)
    except ValueError:
        return {}
    if not isinstance(found, dict):
        return {}
    return {name: value for name, value in found.items() if isinstance(value, int | float | str)}


def _telling(problems: Sequence[tuple[str, str]]) -> list[str]:
    """A name for each (operation, problem): the operation with the sizes and flags in which its problems differ."""
    shared: dict[str, set[str]] = {}
    for operation, problem in problems:
        words = set(problem.split())
        shared[operation] = words & shared.get(operation, words)
    return [
        " ".join([operation, *(word for word in problem.split() if word not in shared[operation])])
        for operation, problem in problems
    ]


def _side_by_side(rows: Sequence[Mapping[str, Any]], operation: str) -> Heat | None:
    """The best times of each problem on several devices, compared; None if there is no such problem."""
    own = [row for row in rows if (not operation or row["operation"] == operation) and row["best"] is not None]
    names = _telling([(row["operation"], f"{row['dtype']} {row['problem']}") for row in own])
    best: dict[str, dict[str, float]] = {}
    for name, row in zip(names, own):
        times = best.setdefault(name, {})
        times[row["device"]] = min(row["best"], times.get(row["device"], row["best"]))
    best = {name: times for name, times in best.items() if len(times) > 1 and min(times.values()) > 0}
    if not best:
        return None
    devices = sorted({device for times in best.values() for device in times})
    apart = {name: max(times.values()) / min(times.values()) for name, times in best.items()}
    problems = sorted(best, key=lambda name: -apart[name])[:MOST_BESIDE]
    cut = f" The {MOST_BESIDE} problems of {len(best)} whose times differ most." if len(best) > MOST_BESIDE else ""
    return Heat(
        title="Devices side by side",
        x=Axis(label="Device", categories=tuple(devices)),
        y=Axis(label="Problem", categories=tuple(problems)),
        z=[[_times(best[problem], device) for device in devices] for problem in problems],
        label="times the fastest",
        note="The best time of a problem on each device, divided by its time on the fastest device." + cut,
    )


def _times(best: Mapping[str, float], device: str) -> float | None:
    return best[device] / min(best.values()) if device in best else None


def _used(each: Measurement) -> dict[str, int]:
    """The resources of the kernels of a measurement, by name. Invalid values in the database are left out."""
    found = each.resources if isinstance(each.resources, Mapping) else {}
    return {name: found[name] for name in RESOURCES if type(found.get(name)) is int and found[name] >= 0}


def _resources(measured: Sequence[Measurement], names: Mapping[str, str]) -> dict[str, Figure]:
    """A figure for each known resource. If there is none, an empty figure that says why."""
    timed = [each for each in measured if each.milliseconds]
    found = {name: _resource(name, timed, names) for name in RESOURCE_FIGURES}
    found = {name: figure for name, figure in found.items() if not figure.is_empty}
    title = "Time against registers and shared memory"
    return found or {"registers": Figure(title=title, x=Axis(label=""), y=Axis(label=""), empty=UNREPORTED)}


def _resource(name: str, timed: Sequence[Measurement], names: Mapping[str, str]) -> Figure:
    title, label, unit, note = RESOURCE_FIGURES[name]
    series: list[Series] = []
    known = [each for each in timed if name in _used(each)]
    devices = list(dict.fromkeys(each.device for each in known))
    for place, device in enumerate(devices):
        about = f"{names.get(device, device[:12])}: " if len(devices) > 1 else ""
        for spills, symbol in ((False, "circle"), (True, "triangle")):
            own = [each for each in known if each.device == device and bool(_used(each).get("spills")) == spills]
            series.append(
                Series(
                    name=f"{about}{'spills registers' if spills else 'no spills'}",
                    x=[_used(each)[name] / unit for each in own],
                    y=[each.milliseconds for each in own],
                    colour=place,
                    symbol=symbol,
                    size=8 if spills else 6,
                    text=[_text(each) for each in own],
                )
            )
    note += SPILLS if any(_used(each).get("spills") for each in known) else ""
    return Figure(title=title, x=Axis(label=label), y=Axis(label="Milliseconds", log=True), series=series, note=note)


def _text(each: Measurement) -> str:
    found = ", ".join(f"{value} {name}" for name, value in _used(each).items())
    return f"{each.implementation} {each.configuration}: {found}"
