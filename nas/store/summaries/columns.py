"""Light rows of many trials at once, for summaries: plain tuples instead of records, without long texts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

from sqlalchemy import Column, Connection, Double, and_, func, select, type_coerce

from nas.metrics import CURVE
from nas.store.models import metric, objective_value, trial, unit
from nas.store.queries import MOST_IDS, changed_since, values_of
from nas.store.records import Mark, UnitKind, UnitState

_MOMENTS = ("created_at", "finished_at")
_COLUMNS = ("number", "state", "arm", "purpose", "operator", "rung", "steps", "error_kind", "parameters", "step_flops")
NAMES = (*_COLUMNS, *_MOMENTS, "hash", "sequence")
_ROWS = select(
    *trial.c[*_COLUMNS],
    *(type_coerce(trial.c[name], Double).label(name) for name in _MOMENTS),  # seconds: a datetime each takes longer
    func.substr(trial.c.architecture_hash, 1, 12).label("hash"),
    unit.c.sequence,
).select_from(trial.outerjoin(unit, unit.c.id == trial.c.last_unit))
_VALUES = select(trial.c.number, objective_value.c.name, objective_value.c.value).select_from(
    trial.join(objective_value, objective_value.c.unit_id == trial.c.last_unit)
)
_SECONDS = select(trial.c.number, func.sum(unit.c.seconds)).select_from(trial.join(unit, unit.c.trial_id == trial.c.id))


class Columns(NamedTuple):
    """Trials, the objectives of their highest finished rung, and the seconds of all their units, by trial number."""

    names: tuple[str, ...]  # of the fields of a row
    rows: list[tuple[Any, ...]]
    values: list[tuple[int, str, float]]
    seconds: list[tuple[int, float | None]]


def columns(connection: Connection, study_id: int, first: int, limit: int) -> Columns:
    """The trials with numbers from `first` on, `limit` numbers, in their order."""
    return _read(connection, and_(trial.c.study_id == study_id, trial.c.number.between(first, first + limit - 1)))


def changed_columns(connection: Connection, study_id: int, since: Mark) -> Columns:
    """The trials that changed since that mark, and perhaps some that did not."""
    ids = list(connection.execute(changed_since(study_id, since)).scalars())
    parts = [_read(connection, trial.c.id.in_(ids[at : at + MOST_IDS])) for at in range(0, len(ids), MOST_IDS)]
    rows, values, seconds = ([row for part in parts for row in getattr(part, name)] for name in Columns._fields[1:])
    return Columns(NAMES, rows, values, seconds)


def _read(connection: Connection, wanted: Any) -> Columns:
    rows = connection.execute(_ROWS.where(wanted).order_by(trial.c.number)).all()
    values = connection.execute(_VALUES.where(wanted)).all()
    seconds = connection.execute(_SECONDS.where(wanted).group_by(trial.c.number)).all()
    return Columns(NAMES, rows, values, seconds)  # type: ignore[arg-type]


def origins(connection: Connection, study_id: int, first: int = 0) -> list[tuple[int, str, list[int]]]:
    """(number, operator, parents) of the trials from number `first` on."""
    asked = select(trial.c.number, trial.c.operator, trial.c.parents)
    asked = asked.where(trial.c.study_id == study_id, trial.c.number >= first).order_by(trial.c.number)
    return [(number, operator, parents) for number, operator, parents in connection.execute(asked)]


def choices(connection: Connection, study_id: int, numbers: list[int]) -> dict[int, dict[str, Any]]:
    """The point of each of these trials, by number."""
    return {number: point or {} for number, point in _of(connection, study_id, numbers, trial.c.choices)}


def errors(connection: Connection, study_id: int, numbers: list[int]) -> dict[int, str]:
    """The message of each of these trials that failed, by number."""
    return {number: text or "" for number, text in _of(connection, study_id, numbers, trial.c.error_text)}


def _of(connection: Connection, study_id: int, numbers: list[int], column: Column[Any]) -> Iterator[tuple[int, Any]]:
    """(number, value of `column`) of these trials."""
    asked = select(trial.c.number, column).where(trial.c.study_id == study_id)
    for start in range(0, len(numbers), MOST_IDS):
        some = asked.where(trial.c.number.in_(numbers[start : start + MOST_IDS]))
        yield from map(tuple, connection.execute(some))


def seconds(connection: Connection, study_id: int) -> dict[int, float]:
    """How long the units of each trial that ended well took, by its number."""
    asked = _SECONDS.where(trial.c.study_id == study_id, unit.c.state == UnitState.DONE).group_by(trial.c.number)
    return {number: total or 0.0 for number, total in connection.execute(asked)}


def last_metrics(connection: Connection, study_id: int) -> dict[int, dict[str, float | None]]:
    """The metrics at the end of the last finished rung of each trial, by its number."""
    ends = and_(metric.c.unit_id == trial.c.last_unit, metric.c.step == trial.c.steps, metric.c.name != CURVE)
    asked = select(trial.c.number, metric.c.name, metric.c.value).join(metric, ends)
    asked = asked.where(trial.c.study_id == study_id).order_by(trial.c.number, metric.c.name)
    found: dict[int, dict[str, float | None]] = defaultdict(dict)
    for number, name, value in connection.execute(asked):
        found[number][name] = value
    return found


def rungs(connection: Connection, study_id: int, objective: str, most: int) -> list[tuple[int, int, int, str, float]]:
    """(number, rung, steps, arm, value) of the units that ended well, in the order in which they ended."""
    joined = unit.join(trial, trial.c.id == unit.c.trial_id).join(
        objective_value, and_(objective_value.c.unit_id == unit.c.id, objective_value.c.name == objective)
    )
    asked = select(trial.c.number, unit.c.rung, unit.c.steps, trial.c.arm, objective_value.c.value).select_from(joined)
    asked = asked.where(unit.c.study_id == study_id, unit.c.kind == UnitKind.TRAIN, trial.c.purpose == "search")
    rows = connection.execute(asked.order_by(unit.c.sequence).limit(most))
    return [(number, rung, steps, arm, value) for number, rung, steps, arm, value in rows]


def probes(connection: Connection, study_id: int, most: int) -> dict[int, dict[str, float]]:
    """What the probe of each trial found, by its number, for at most `most` trials in the order in which they ended."""
    asked = select(unit.c.id, trial.c.number).join(trial, trial.c.id == unit.c.trial_id)
    asked = asked.where(
        unit.c.study_id == study_id, unit.c.kind == UnitKind.PROBE, unit.c.rung == 0, unit.c.sequence > 0
    )
    asked = asked.order_by(unit.c.sequence).limit(most)
    numbers = {row[0]: row[1] for row in connection.execute(asked)}
    found = values_of(connection, asked.with_only_columns(unit.c.id))
    return {number: found[unit_id] for unit_id, number in numbers.items() if unit_id in found}
