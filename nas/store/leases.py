"""Who runs which unit: leases by the database's clock, so that machines need not agree on the time."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import Connection, Select, and_, func, or_, select, update

from nas.store.models import architecture, trial, unit, unit_is_open
from nas.store.records import Owner, TrialState, Unit, UnitState
from nas.store.types import now

_below = unit.alias("below")
_UNITS = (
    select(
        unit.c.id,
        unit.c.study_id,
        unit.c.trial_id,
        trial.c.number,
        trial.c.purpose,
        trial.c.architecture_hash,
        architecture.c.text.label("architecture"),
        trial.c.choices,
        trial.c.seed,
        unit.c.rung,
        unit.c.steps,
        unit.c.owner,
        unit.c.attempts.label("attempt"),
        unit.c.released,
        _below.c.checkpoint_uri.label("start_uri"),
        _below.c.checkpoint_sha256.label("start_sha256"),
    )
    .join(trial, trial.c.id == unit.c.trial_id)
    .join(architecture, architecture.c.hash == trial.c.architecture_hash)
    .outerjoin(_below, and_(_below.c.trial_id == unit.c.trial_id, _below.c.rung == unit.c.rung - 1))
    .order_by(unit.c.rung.desc(), unit.c.id)
)


def units(connection: Connection, ids: Collection[int]) -> list[Unit]:
    """The units with these ids, higher rungs first."""
    rows = connection.execute(_UNITS.where(unit.c.id.in_(ids)))
    return [Unit(**row._mapping) for row in rows]


def lease(
    connection: Connection, study_id: int, owner: str, count: int, seconds: float, dead: Collection[str], token: str
) -> list[Unit]:
    """Give `owner` up to `count` units that nobody runs: queued, expired, or of an owner known to be dead.

    Higher rungs come first, for they have cost most. A unit in another transaction's hands is passed over.
    """
    own = _open_of(study_id, unit.c.id).where(unit.c.token == token, unit.c.owner == owner)
    earlier = list(connection.execute(own.where(unit.c.state == UnitState.RUNNING)).scalars())
    if earlier:  # committed by an earlier run of this call
        return units(connection, earlier)
    abandoned = or_(unit.c.lease_expires < now(), unit.c.owner.in_(dead))
    free = or_(
        unit.c.state == UnitState.QUEUED,
        and_(unit.c.state == UnitState.RUNNING, unit.c.owner != owner, abandoned),
    )
    candidates = (
        _open_of(study_id, unit.c.id)
        .where(free)
        .order_by(unit.c.rung.desc(), unit.c.id)
        .limit(count)
        .with_for_update(skip_locked=True)
    )
    ids = list(connection.execute(candidates).scalars())
    if ids:
        _take(connection, ids, owner, seconds, token)
    return units(connection, ids) if ids else []


def renew(connection: Connection, ids: Collection[int], owner: str, seconds: float) -> list[int]:
    """Extend the leases -> the units still held. One that expired but was not taken over is held again."""
    statement = update(unit).where(*_held(ids, owner)).values(lease_expires=now() + seconds)
    return sorted(connection.execute(statement.returning(unit.c.id)).scalars())


def release(connection: Connection, ids: Collection[int], owner: str) -> list[int]:
    """Put units back in the queue without counting the attempt -> those that were held."""
    back = {"state": UnitState.QUEUED, "owner": None, "lease_expires": None, "released": unit.c.released + 1}
    statement = update(unit).where(*_held(ids, owner)).values(back)
    return sorted(connection.execute(statement.returning(unit.c.id)).scalars())


def owners(connection: Connection, study_id: int) -> list[Owner]:
    """Who holds leases that have not expired."""
    latest = func.max(unit.c.lease_expires, type_=unit.c.lease_expires.type)
    statement = (
        _open_of(study_id, unit.c.owner, func.count(), latest)
        .where(unit.c.state == UnitState.RUNNING, unit.c.lease_expires > now())
        .group_by(unit.c.owner)
        .order_by(unit.c.owner)
    )
    return [Owner(*row) for row in connection.execute(statement)]


def leased(connection: Connection, study_id: int, owner: str) -> list[Unit]:
    """The units that `owner` holds: nobody else has taken them over."""
    held = _open_of(study_id, unit.c.id).where(unit.c.state == UnitState.RUNNING, unit.c.owner == owner)
    return units(connection, list(connection.execute(held).scalars()))


def _open_of(study_id: int, *columns: Any) -> Select:
    return select(*columns).where(unit.c.study_id == study_id, unit_is_open)


def _held(ids: Collection[int], owner: str) -> Sequence:
    return unit.c.id.in_(ids), unit.c.owner == owner, unit.c.state == UnitState.RUNNING


def _take(connection: Connection, ids: Collection[int], owner: str, seconds: float, token: str) -> None:
    taken = {
        "state": UnitState.RUNNING,
        "owner": owner,
        "lease_expires": now() + seconds,
        "attempts": unit.c.attempts + 1,
        "token": token,
    }
    connection.execute(update(unit).where(unit.c.id.in_(ids)).values(taken))
    started = select(unit.c.trial_id).where(unit.c.id.in_(ids))
    connection.execute(
        update(trial)
        .where(trial.c.id.in_(started), trial.c.state == TrialState.WAITING)
        .values(state=TrialState.RUNNING, started_at=now())
    )
