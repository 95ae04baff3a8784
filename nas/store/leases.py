"""Leases: which owner runs which unit. They use the database's clock, so the clocks of the machines may differ."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, Text, and_, bindparam, case, func, or_, select, update

from nas.store.models import architecture, trial, unit, unit_is_open
from nas.store.records import LEASE_SECONDS, Owner, TrialState, Unit, UnitKind, UnitState
from nas.store.types import MOST_TEXT, now
from nas.work import Progress

_below = unit.alias("below")
_UNITS = (
    select(
        *unit.c["id", "study_id", "trial_id", "kind", "rung", "steps", "state", "owner", "released"],
        *trial.c["number", "place", "arm", "purpose", "operator", "seed", "recipe", "choices", "cheap_values"],
        trial.c.architecture_hash,
        architecture.c.text.label("architecture"),
        unit.c.attempts.label("attempt"),
        _below.c.checkpoint_uri.label("start_uri"),
        _below.c.checkpoint_sha256.label("start_sha256"),
    )
    .join(trial, trial.c.id == unit.c.trial_id)
    .join(architecture, architecture.c.hash == trial.c.architecture_hash)
    .outerjoin(
        _below,
        and_(_below.c.trial_id == unit.c.trial_id, _below.c.kind == UnitKind.TRAIN, _below.c.rung == unit.c.rung - 1),
    )
    .order_by(unit.c.rung.desc(), unit.c.id)
)


NO_PROGRESS = dict.fromkeys(("progress_step", "progress_loss", "progress_rate", "progress_at", "progress_curve"))
_CURVE = unit.c.progress_curve
_NOTED = (unit.c.progress_step == bindparam("at_step"), _CURVE)  # by an earlier run of the call
_FULL = (func.length(_CURVE) > MOST_TEXT, _CURVE)  # thousands of points; each renewal writes all of them
_NOTE_PROGRESS = (
    update(unit)
    .where(unit.c.id == bindparam("unit_id"))
    .values(
        progress_at=now(),
        progress_curve=case(_NOTED, _FULL, else_=func.coalesce(_CURVE, "") + bindparam("point", type_=Text)),
    )
)


def units(connection: Connection, ids: Collection[int]) -> list[Unit]:
    """The units with these ids, higher rungs first."""
    rows = connection.execute(_UNITS.where(unit.c.id.in_(ids)))
    return [_unit(row) for row in rows]


def _unit(row: Any) -> Unit:
    fields = dict(row._mapping)
    return Unit(**fields | {"kind": UnitKind(fields["kind"]), "state": UnitState(fields["state"])})


def lease(
    connection: Connection,
    token: str,
    study_id: int,
    owner: str,
    count: int = 1,
    seconds: float = LEASE_SECONDS,
    dead_owners: Collection[str] = (),
) -> list[Unit]:
    """Lease to `owner`, for `seconds`, up to `count` units that are free: queued, expired, or of a dead owner.

    Higher rungs come first, because they have cost most. A unit that another transaction has locked is skipped.
    """
    own = _open_of(study_id, unit.c.id).where(unit.c.token == token, unit.c.owner == owner)
    earlier = list(connection.execute(own.where(unit.c.state == UnitState.RUNNING)).scalars())
    if earlier:  # committed by an earlier run of this call
        return units(connection, earlier)
    abandoned = or_(unit.c.lease_expires < now(), unit.c.owner.in_(dead_owners))
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


def renew(
    connection: Connection,
    ids: Collection[int],
    owner: str,
    seconds: float = LEASE_SECONDS,
    progress: Mapping[int, Progress] | None = None,
) -> list[int]:
    """Extend the leases -> the units still held. One that expired but was not taken over is held again.

    progress: of some of the units, by id. It is stored with them; see `nas.store.models.unit`.
    """
    known = progress or {}
    statement = update(unit).where(*_held(ids, owner)).values(lease_expires=now() + seconds)
    held = sorted(connection.execute(statement.returning(unit.c.id)).scalars())
    rows = [_progress_of(each, known[each]) for each in held if each in known]
    if rows:
        connection.execute(_NOTE_PROGRESS, rows)
    return held


def _progress_of(unit_id: int, progress: Progress) -> dict[str, Any]:
    loss = _finite(progress.loss)
    return {
        "unit_id": unit_id,
        "at_step": progress.step,
        "point": f"{progress.step} {'' if loss is None else repr(loss)}\n",
        "progress_step": progress.step,
        "progress_loss": loss,
        "progress_rate": _finite(progress.tokens_per_second),
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def release(connection: Connection, ids: Collection[int], owner: str) -> list[int]:
    """Put units back in the queue without counting the attempt -> those that were held."""
    return _put_back(connection, *_held(ids, owner))


def release_all(connection: Connection, study_id: int, owners: Collection[str]) -> list[int]:
    """Put all units of a study that these owners hold back in the queue, as `release` does."""
    held = unit.c.state == UnitState.RUNNING, unit.c.owner.in_(owners)
    return _put_back(connection, unit.c.study_id == study_id, and_(unit_is_open), *held)


def _put_back(connection: Connection, *which: ColumnElement[bool]) -> list[int]:
    back = {"state": UnitState.QUEUED, "owner": None, "lease_expires": None, "released": unit.c.released + 1}
    statement = update(unit).where(*which).values(back | NO_PROGRESS)
    return sorted(connection.execute(statement.returning(unit.c.id)).scalars())


def owners(connection: Connection, study_id: int) -> list[Owner]:
    """The owners of leases that have not expired."""
    latest = func.max(unit.c.lease_expires, type_=unit.c.lease_expires.type)
    statement = (
        _open_of(study_id, unit.c.owner, func.count(), latest)
        .where(unit.c.state == UnitState.RUNNING, unit.c.lease_expires > now())
        .group_by(unit.c.owner)
        .order_by(unit.c.owner)
    )
    return [Owner(*row) for row in connection.execute(statement)]


def leased(connection: Connection, study_id: int, owner: str) -> list[Unit]:
    """The units that `owner` holds and no other owner has taken over."""
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
    } | NO_PROGRESS
    connection.execute(update(unit).where(unit.c.id.in_(ids)).values(taken))
    started = select(unit.c.trial_id).where(unit.c.id.in_(ids))
    connection.execute(
        update(trial)
        .where(trial.c.id.in_(started), trial.c.state == TrialState.WAITING)
        .values(state=TrialState.RUNNING, started_at=now())
    )
