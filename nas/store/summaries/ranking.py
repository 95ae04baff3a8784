"""Which trials are best: by one objective, or the Pareto front over several; and their results at each rung."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import Connection, ScalarSelect, Select, Subquery, and_, func, or_, select, union_all

from nas.errors import UsageError
from nas.store.models import objective_value, study, trial, unit
from nas.store.queries import MOST_IDS, light_trials, unknown
from nas.store.records import PURPOSES, SEARCH, RungResult, Trial, TrialState, UnitKind, UnitState


def best(
    connection: Connection,
    study_id: int,
    objective: str | None = None,
    limit: int | None = 10,
    *,
    states: Collection[str] = (TrialState.COMPLETE,),
    purposes: Collection[str] = (),
    longest: bool = False,
    reached: float | None = None,
) -> list[Trial]:
    """The best trials by one objective (the study's first, if None), best first; of equal trials the older comes first.

    longest: trials with more training steps come first. reached: only trials that are at least as good as this value;
    if it is near the best, few rows are joined. Raises UsageError if the study has no such objective.
    """
    directions = _directions(connection, study_id, [objective] if objective else None)
    name, sign = next(iter(directions.items()))
    value = objective_value.c.value
    statement = (
        _ranked(study_id, states, purposes)
        .add_columns(value)
        .join(*_value_of(objective_value, name, trial.c.last_unit))
    )
    better = value if sign > 0 else value.desc()
    if reached is not None:
        statement = statement.where(value <= reached if sign > 0 else value >= reached)
    if longest and limit is not None:  # mostly there are enough trials with the most steps: the others are not read
        longest_first = statement.where(trial.c.steps == _most_steps(study_id, states, purposes))
        first = longest_first.order_by(better, trial.c.number).limit(limit)
        if len(found := connection.execute(first).all()) == limit:
            return _complete(connection, [row.unit_id for row in found])
    if longest:
        statement = statement.order_by(trial.c.steps.desc())
    statement = statement.order_by(better, trial.c.number).limit(limit)
    return _complete(connection, [row.unit_id for row in connection.execute(statement)])


def pareto(
    connection: Connection,
    study_id: int,
    objectives: Sequence[str] | None = None,
    *,
    states: Collection[str] = (TrialState.COMPLETE,),
    purposes: Collection[str] = (),
    longest: bool = False,
) -> list[Trial]:
    """The trials that no other dominates in these objectives (the study's, if None), ordered by the first of them.

    longest: only the trials with the most training steps count. Raises UsageError if an objective is unknown.
    """
    directions = _directions(connection, study_id, objectives)
    statement = _ranked(study_id, states, purposes)
    if longest:
        statement = statement.where(trial.c.steps == _most_steps(study_id, states, purposes))
    for position, (name, sign) in enumerate(directions.items()):
        table = objective_value.alias()
        value = (sign * table.c.value).label(f"value_{position}")  # to be minimised
        statement = statement.add_columns(value).join(*_value_of(table, name, trial.c.last_unit))
    kept = _complete(connection, _front(connection, statement, len(directions)))
    names = list(directions)
    return sorted(kept, key=lambda each: (*(directions[name] * each.values[name] for name in names), each.number))


def rung_results(connection: Connection, study_id: int, objective: str, limit: int) -> list[RungResult]:
    """What the trials of the search reached at each rung in one objective; the first `limit` results of the study."""
    value, parameters, flops = (objective_value.alias() for _ in range(3))
    statement = (
        select(
            trial.c.number,
            unit.c.steps,
            value.c.value,
            func.coalesce(trial.c.parameters, parameters.c.value),
            trial.c.step_flops,
            flops.c.value,
        )
        .select_from(unit)
        .join(trial, trial.c.id == unit.c.trial_id)
        .join(*_value_of(value, objective))
        .outerjoin(*_value_of(parameters, "parameters"))
        .outerjoin(*_value_of(flops, "flops"))
        .where(unit.c.study_id == study_id, unit.c.sequence > 0, unit.c.state == UnitState.DONE)
        .where(unit.c.kind == UnitKind.TRAIN, trial.c.purpose == SEARCH)
        .order_by(unit.c.sequence)
        .limit(limit)
    )
    return [RungResult(*row) for row in connection.execute(statement)]


def _ranked(study_id: int, states: Collection[str], purposes: Collection[str]) -> Select:
    """The last finished unit of each trial in one of `states`, of one of `purposes` (of any, if empty)."""
    statement = select(trial.c.last_unit.label("unit_id"))
    statement = statement.where(trial.c.study_id == study_id, trial.c.state.in_(states))
    return statement.where(trial.c.purpose.in_(purposes)) if purposes else statement


def _most_steps(study_id: int, states: Collection[str], purposes: Collection[str]) -> ScalarSelect:
    """The most steps that one of these trials has ended. Each purpose and state is one look at the end of an index."""
    ends = union_all(
        *(
            select(func.max(trial.c.steps).label("steps")).where(
                trial.c.study_id == study_id, trial.c.purpose == purpose, trial.c.state == state
            )
            for purpose in purposes or PURPOSES
            for state in states
        )
    ).subquery()
    return select(func.max(ends.c.steps)).scalar_subquery()


def _front(connection: Connection, points: Select, objectives: int) -> list[int]:
    """The units of those rows (unit, value, ...) that no other row dominates; equal rows stay together."""
    if objectives == 1:
        points = _lowest(points)
    elif objectives == 2:
        points = _front_of_two(points)
    rows = connection.execute(points).all()
    if objectives > 2:
        from nas import pareto  # with NumPy, which fewer objectives do without

        rows = [rows[index] for index in pareto.front([row[1:] for row in rows])]
    return [row.unit_id for row in rows]


def _lowest(points: Select) -> Select:
    """The rows with the lowest value."""
    found = points.cte()
    return select(found.c.unit_id).where(found.c.value_0 == select(func.min(found.c.value_0)).scalar_subquery())


def _front_of_two(points: Select) -> Select:
    """The rows with the lowest second value for their first, if all rows with a lower first value have a higher one."""
    found = _lower_than_all_before(points.subquery())
    first, second = found.c.value_0, found.c.value_1
    lowest = func.min(second).over(partition_by=first)
    before = func.min(second).over(order_by=first, groups=(None, -1))  # over the rows with a lower first value
    seen = select(found, lowest.label("lowest"), before.label("before")).subquery()
    on_front = and_(seen.c.value_1 == seen.c.lowest, or_(seen.c.before.is_(None), seen.c.value_1 < seen.c.before))
    return select(seen.c.unit_id).where(on_front)


def _lower_than_all_before(points: Subquery) -> Subquery:
    """The rows that no row with a lower or equal first value undercuts: few, so that what follows is cheap."""
    first, second = points.c.value_0, points.c.value_1
    least = func.min(second).over(order_by=(first, second), rows=(None, 0))
    seen = select(points, least.label("least")).subquery()
    return select(seen.c.unit_id, seen.c.value_0, seen.c.value_1).where(seen.c.value_1 <= seen.c.least).subquery()


def _value_of(table: Any, name: str, unit_id: Any = unit.c.id) -> tuple[Any, Any]:
    return table, and_(table.c.unit_id == unit_id, table.c.name == name)


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
    found: dict[int, Trial] = {}
    for some in (unit_ids[start : start + MOST_IDS] for start in range(0, len(unit_ids), MOST_IDS)):
        found |= light_trials(connection, some)
    return [found[unit_id] for unit_id in unit_ids]
