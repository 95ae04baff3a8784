"""Which trials are best: by one objective, or by none worse in all."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import Connection, Row, Select, and_, func, select

from nas.errors import UsageError
from nas.store.models import objective_value, study, trial, unit
from nas.store.queries import unknown
from nas.store.records import Trial, TrialState, UnitKind


def best(
    connection: Connection,
    study_id: int,
    objective: str | None,
    limit: int | None,
    states: Collection[str],
    purposes: Collection[str],
    highest_rung: bool,
) -> list[Trial]:
    """The best trials by one objective (the study's first, if None), best first, the older before an equal one.

    highest_rung: those of a higher rung come first, for a lower one was trained less.
    """
    directions = _directions(connection, study_id, [objective] if objective else None)
    name, sign = next(iter(directions.items()))
    value = objective_value.c.value
    statement = _ranked(study_id, states, purposes).add_columns(value).join(*_value_of(objective_value, name))
    if highest_rung:
        statement = statement.order_by(trial.c.rung.desc())
    statement = statement.order_by(value if sign > 0 else value.desc(), trial.c.number).limit(limit)
    return _complete(connection, [row.unit_id for row in connection.execute(statement)])


def pareto(
    connection: Connection,
    study_id: int,
    objectives: Sequence[str] | None,
    states: Collection[str],
    purposes: Collection[str],
    highest_rung: bool,
) -> list[Trial]:
    """The trials that none beats in all these objectives (the study's, if None), by the first of them.

    highest_rung: only those of the highest rung that was reached take part.
    """
    directions = _directions(connection, study_id, objectives)
    statement = _ranked(study_id, states, purposes)
    if highest_rung:
        reached = _ranked(study_id, states, purposes).with_only_columns(func.max(trial.c.rung))
        statement = statement.where(trial.c.rung == reached.scalar_subquery())
    for position, (name, sign) in enumerate(directions.items()):
        table = objective_value.alias()
        value = (sign * table.c.value).label(f"value_{position}")  # to be minimised
        statement = statement.add_columns(value).join(*_value_of(table, name))
    rows = connection.execute(_candidates_of_two(statement) if len(directions) == 2 else statement).all()
    kept = _complete(connection, [row.unit_id for row in _front(rows)])
    names = list(directions)
    return sorted(kept, key=lambda each: (*(directions[name] * each.values[name] for name in names), each.number))


def _ranked(study_id: int, states: Collection[str], purposes: Collection[str]) -> Select:
    """The last finished unit of each trial in one of `states`, of one of `purposes` (of any, if empty)."""
    statement = select(unit.c.id.label("unit_id")).join(
        trial, and_(unit.c.trial_id == trial.c.id, unit.c.kind == UnitKind.TRAIN, unit.c.rung == trial.c.rung)
    )
    statement = statement.where(trial.c.study_id == study_id, trial.c.state.in_(states))
    return statement.where(trial.c.purpose.in_(purposes)) if purposes else statement


def _front(rows: Sequence[Row]) -> list[Row]:
    """Those of (unit, value, ...) that no other one beats."""
    if len(rows) < 2:
        return list(rows)
    from nas import pareto  # with NumPy, which a study without results does without

    return [rows[index] for index in pareto.front([row[1:] for row in rows])]


def _candidates_of_two(statement: Select) -> Select:
    """Leave out, in the database, whoever has one before it that is lower in the second value: few rows are left."""
    points = statement.subquery()
    least = func.min(points.c.value_1).over(order_by=(points.c.value_0, points.c.value_1), rows=(None, 0))
    beside = select(points, least.label("least")).subquery()
    return select(beside.c.unit_id, beside.c.value_0, beside.c.value_1).where(beside.c.value_1 <= beside.c.least)


def _value_of(table: Any, name: str) -> tuple[Any, Any]:
    return table, and_(table.c.unit_id == unit.c.id, table.c.name == name)


def _directions(connection: Connection, study_id: int, names: Sequence[str] | None) -> dict[str, int]:
    """{name: 1 if it is to be minimised, -1 if maximised}."""
    declared = connection.execute(select(study.c.objectives).where(study.c.id == study_id)).scalar_one()
    directions = {each["name"]: -1 if each["direction"].startswith("max") else 1 for each in declared}
    for name in names or ():
        if name not in directions:
            raise UsageError(unknown("objective", name, directions))
    return {name: directions[name] for name in names or directions}


def _complete(connection: Connection, unit_ids: list[int]) -> list[Trial]:
    """The trials of these units with all their objectives, in the same order."""
    columns = trial.c["id", "number", "arm", "purpose", "seed", "state", "rung", "steps", "architecture_hash"]
    found: dict[int, dict[str, Any]] = {}
    for some in (unit_ids[start : start + 500] for start in range(0, len(unit_ids), 500)):
        statement = (
            select(unit.c.id, objective_value.c.name, objective_value.c.value, *columns)
            .join(trial, trial.c.id == unit.c.trial_id)
            .outerjoin(objective_value, objective_value.c.unit_id == unit.c.id)
            .where(unit.c.id.in_(some))
        )
        for unit_id, name, value, *fields in connection.execute(statement):
            named = dict(zip((column.name for column in columns), fields, strict=True))
            entry = found.setdefault(unit_id, named | {"state": TrialState(named["state"]), "values": {}})
            if name is not None:
                entry["values"][name] = value
    return [Trial(**found[unit_id]) for unit_id in unit_ids]
