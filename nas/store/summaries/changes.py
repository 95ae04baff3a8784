"""What goes on in a study and what changed: open units, the pace of those that ended, changes since a mark."""

from __future__ import annotations

from sqlalchemy import ColumnElement, Connection, FromClause, and_, case, func, or_, select, type_coerce

from nas.store.models import study, trial, unit, unit_is_open
from nas.store.records import (
    FAILED_SECONDS,
    FINAL,
    SEARCH,
    Mark,
    Pace,
    Trained,
    TrialState,
    Unit,
    UnitKind,
    UnitState,
)
from nas.store.types import Moment, now

_OPEN_UNIT = select(
    *(unit.c[name] for name in ("id", "study_id", "trial_id", "kind", "rung", "steps", "state", "owner", "released")),
    unit.c.attempts.label("attempt"),
    *(unit.c[f"progress_{name}"] for name in ("step", "loss", "rate", "at")),
    func.coalesce(unit.c.lease_expires < now(), False).label("expired"),
    *(trial.c[name] for name in ("number", "place", "arm", "purpose", "seed", "architecture_hash")),
).join(trial, trial.c.id == unit.c.trial_id)


def unfinished(connection: Connection, study_id: int) -> list[Unit]:
    """The units that have not ended, by trial, without architectures; `expired` says whether a lease has run out."""
    statement = _OPEN_UNIT.where(unit.c.study_id == study_id, unit_is_open).order_by(trial.c.number, unit.c.rung)
    return [
        Unit(**row | {"kind": UnitKind(row["kind"]), "state": UnitState(row["state"]), "expired": bool(row["expired"])})
        for row in map(dict, connection.execute(statement).mappings())
    ]


def pace(connection: Connection, study_id: int) -> list[Pace]:
    """How many training units ended well and how long they took, by purpose, rung, and first and last step."""
    before = unit.alias()
    columns = trial.c.purpose, unit.c.rung, func.coalesce(before.c.steps, 0), unit.c.steps
    statement = (
        select(*columns, func.count(), func.coalesce(func.sum(unit.c.seconds), 0.0))
        .join(trial, trial.c.id == unit.c.trial_id)
        .outerjoin(before, _follows(before))
        .where(unit.c.study_id == study_id, unit.c.state == UnitState.DONE, unit.c.kind == UnitKind.TRAIN)
        .group_by(*columns)
        .order_by(*columns)
    )
    return [Pace(*row) for row in connection.execute(statement)]


def _follows(before: FromClause) -> ColumnElement[bool]:
    """Whether `before` is the rung of the same trial before that of `unit`."""
    same = and_(before.c.trial_id == unit.c.trial_id, before.c.kind == UnitKind.TRAIN)
    return and_(same, before.c.rung == unit.c.rung - 1)


def trained(connection: Connection, study_id: int) -> Trained:
    """What the units of the search that ended have trained. `nas.engine.allowance` counts the same from the log."""
    # The trials have the steps of their last finished rung, in an index; only a failed unit went beyond them.
    of_search = trial.c.study_id == study_id, trial.c.purpose == SEARCH
    finished = select(*_amounts(trial.c.steps, trial.c.rung.is_not(None))).where(*of_search)
    beyond = unit.c.steps - func.coalesce(trial.c.steps, 0)
    failed = select(*_amounts(beyond, trial.c.rung.is_(None))).join(unit, unit.c.trial_id == trial.c.id)
    its_own = or_(unit.c.kind == UnitKind.TRAIN, unit.c.rung == 0)  # not a value that a machine looked for later
    failed = failed.where(*of_search, trial.c.state == TrialState.FAILED, unit.c.state == UnitState.FAILED, its_own)
    steps, flops, unknown = (sum(each) for each in zip(*(connection.execute(one).one() for one in (finished, failed))))
    others = trial.c.study_id == study_id, trial.c.purpose == FINAL
    every = select(_SPENT, func.coalesce(func.sum(unit.c.seconds), 0.0)).where(unit.c.study_id == study_id)
    spent, seconds = connection.execute(every).one()
    spent -= connection.execute(select(_SPENT).join(trial, trial.c.id == unit.c.trial_id).where(*others)).scalar_one()
    return Trained(int(steps), None if unknown else float(flops), float(spent), float(seconds))


_SECONDS = func.coalesce(unit.c.seconds, 0.0)
_TOO_SHORT = and_(unit.c.state == UnitState.FAILED, _SECONDS < FAILED_SECONDS)
_SPENT = func.coalesce(func.sum(case((_TOO_SHORT, FAILED_SECONDS), else_=_SECONDS)), 0.0)


def _amounts(steps: ColumnElement[int], counted: ColumnElement[bool]) -> tuple[ColumnElement, ...]:
    """Steps, FLOPs, and how many of the `counted` trials have unknown FLOPs."""
    flops = trial.c.step_flops
    unknown = func.count().filter(and_(flops.is_(None), counted))
    return func.coalesce(func.sum(steps), 0), func.coalesce(func.sum(steps * flops), 0.0), unknown


def mark(connection: Connection, study_id: int) -> Mark:
    """This moment in the life of a study."""
    row = connection.execute(select(study.c.sequence, type_coerce(now(), Moment)).where(study.c.id == study_id)).one()
    return Mark(*row)
