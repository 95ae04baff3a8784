"""Changes of a trial: added with its first unit, promoted to the next rung, stopped when the search ends."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Insert, Select, bindparam, exists, func, insert, select, type_coerce, update
from sqlalchemy import text as sql

from nas.store import drawings
from nas.store.leases import units
from nas.store.models import space_version, trial, unit
from nas.store.records import NewTrial, Refusal, TrialAdded, TrialRefused, TrialState, Unit, UnitKind, UnitState
from nas.store.studies import lock, next_in_sequence
from nas.store.types import Moment, now, storable
from nas.store.upkeep import checksums

_KEEP_ARCHITECTURE = sql(
    "INSERT INTO architecture (hash, text, checksum) VALUES (:hash, :text, :checksum) ON CONFLICT DO NOTHING"
)


def _surroundings() -> Select:
    """One row: trials that conflict with a new one, its place in its arm and purpose, the newest space, the time."""
    same_study = trial.c.study_id == bindparam("study")
    same_number = trial.c.number == bindparam("number")
    same_purpose = (trial.c.purpose == bindparam("purpose")) & (trial.c.arm == bindparam("arm"))
    same_architecture = (trial.c.architecture_hash == bindparam("hash")) & (trial.c.seed == bindparam("seed"))
    last = select(func.max(trial.c.place)).where(same_study, same_purpose)
    space = select(func.max(space_version.c.number)).where(space_version.c.study_id == bindparam("study"))
    own = select(trial.c.id).where(same_study, same_number, trial.c.token == bindparam("token"))
    same_variant = trial.c.variant == bindparam("variant")
    twin = select(trial.c.number).where(same_study, same_architecture, same_purpose, same_variant)
    return select(
        own.scalar_subquery().label("own_id"),
        select(trial.c.id).where(same_study, same_number).scalar_subquery().label("same_number"),
        twin.scalar_subquery().label("same_architecture"),
        (func.coalesce(last.scalar_subquery(), -1) + 1).label("place"),
        space.scalar_subquery().label("space_version"),
        type_coerce(now(), Moment).label("time"),
    )


# These statements are on the hot path. They are built once, because building one costs more than running it.
_SURROUNDINGS = _surroundings()
_INSERT_TRIAL = insert(trial)
_INSERT_UNIT = insert(unit)


def add(connection: Connection, new: NewTrial) -> TrialAdded | TrialRefused:
    """Insert a trial with its first unit, leased if it has an owner, or say why that is refused."""
    lock(connection, new.study_id)  # number, place and uniqueness hold until the commit
    before = connection.execute(
        _SURROUNDINGS,
        {
            "study": new.study_id,
            "number": new.number,
            "arm": new.arm,
            "purpose": new.purpose,
            "hash": new.architecture_hash,
            "seed": new.seed,
            "variant": new.variant,
            "token": new.token,
        },
    ).one()
    if before.own_id is not None:  # committed by an earlier run of this call
        return _added_earlier(connection, before.own_id, new)
    if before.same_number is not None:
        return TrialRefused(Refusal.NUMBER_TAKEN, new.number)
    if before.same_architecture is not None:
        return TrialRefused(Refusal.ARCHITECTURE_KNOWN, before.same_architecture)
    if new.limit is not None and before.place >= new.limit:
        return TrialRefused(Refusal.LIMIT_REACHED)
    text = {"hash": new.architecture_hash, "text": new.architecture}
    connection.execute(_KEEP_ARCHITECTURE, text | {"checksum": checksums.of_row(text, checksums.ARCHITECTURE)})
    if new.drawing is not None:
        drawings.add(connection, new.study_id, new.architecture_hash, new.drawing)
    trial_id = _insert_trial(connection, new, before)
    unit_id = _insert_unit(connection, new, trial_id, before.time)
    return TrialAdded(trial_id, new.number, None if new.failure else _first_unit(new, trial_id, unit_id, before.place))


def promote(
    connection: Connection, trial_id: int, rung: int, steps: int, owner: str | None, seconds: float, token: str
) -> Unit | None:
    """Queue `rung` of a running trial that finished the rung below, or lease it to `owner`; None if it cannot run."""
    held = connection.execute(
        select(trial.c.study_id, trial.c.state, trial.c.rung, type_coerce(now(), Moment).label("time"))
        .where(trial.c.id == trial_id)
        .with_for_update(key_share=True)
    ).one()
    existing = connection.execute(
        select(unit.c.id, unit.c.token).where(
            unit.c.trial_id == trial_id, unit.c.kind == UnitKind.TRAIN, unit.c.rung == rung
        )
    ).first()
    if existing is not None:
        return units(connection, [existing.id])[0] if existing.token == token else None
    if held.state != TrialState.RUNNING or held.rung != rung - 1:
        return None
    row = {"study_id": held.study_id, "trial_id": trial_id, "kind": UnitKind.TRAIN, "rung": rung, "steps": steps}
    row["token"] = token
    made = _insert(connection, _INSERT_UNIT, row | _lease_of(owner, held.time, seconds))
    return units(connection, [made])[0]


def stop(connection: Connection, study_id: int) -> int:
    """Stop every running trial that has no unit to run -> how many."""
    is_open = exists().where(unit.c.trial_id == trial.c.id, unit.c.state.in_([UnitState.QUEUED, UnitState.RUNNING]))
    statement = (
        update(trial)
        .where(trial.c.study_id == study_id, trial.c.state == TrialState.RUNNING, ~is_open)
        .values(state=TrialState.STOPPED, finished_at=now())
    )
    return connection.execute(statement).rowcount


def _insert_trial(connection: Connection, new: NewTrial, before: Any) -> int:
    row = {
        "study_id": new.study_id,
        "number": new.number,
        "place": before.place,
        "arm": new.arm,
        "architecture_hash": new.architecture_hash,
        "seed": new.seed,
        "purpose": new.purpose,
        "state": TrialState.FAILED if new.failure else TrialState.RUNNING if new.owner else TrialState.WAITING,
        "operator": new.operator,
        "parents": list(new.parents),
        "choices": new.choices,
        "space_version": before.space_version if new.space_version is None else new.space_version,
        "known_results": new.known_results,
        "known_trials": new.known_trials,
        "cheap_values": dict(new.cheap_values),
        "evidence": dict(new.evidence) or None,
        "parameters": new.parameters,
        "step_flops": new.step_flops,
        "variant": new.variant,
        "recipe": None if new.recipe is None else dict(new.recipe),
        "created_at": before.time,
        "started_at": before.time if new.owner and not new.failure else None,
        "finished_at": before.time if new.failure else None,
        "token": new.token,
    } | _error(new.failure)
    row["checksum"] = checksums.of_row(row, checksums.TRIAL)
    return _insert(connection, _INSERT_TRIAL, row)


def _insert_unit(connection: Connection, new: NewTrial, trial_id: int, time: datetime) -> int:
    row: dict[str, Any] = {"study_id": new.study_id, "trial_id": trial_id, "kind": new.kind, "rung": 0}
    row |= {"steps": new.steps, "token": new.token} | _error(new.failure)
    if new.failure:
        row |= {"state": UnitState.FAILED, "attempts": 0, "released": 0, "owner": None, "lease_expires": None}
        row["sequence"] = next_in_sequence(connection, new.study_id)
    else:
        row |= _lease_of(new.owner, time, new.lease_seconds)
    return _insert(connection, _INSERT_UNIT, row)


def _insert(connection: Connection, statement: Insert, row: dict[str, Any]) -> int:
    key = connection.execute(statement, row).inserted_primary_key
    assert key is not None  # one row, one key
    return key[0]


def _lease_of(owner: str | None, time: datetime, seconds: float) -> dict[str, Any]:
    if owner is None:
        return {"state": UnitState.QUEUED, "owner": None, "lease_expires": None, "attempts": 0, "released": 0}
    expires = time + timedelta(seconds=seconds)
    return {"state": UnitState.RUNNING, "owner": owner, "lease_expires": expires, "attempts": 1, "released": 0}


def _error(failure: tuple[str, str] | None) -> dict[str, str | None]:
    kind, text = failure or (None, None)
    return {"error_kind": kind, "error_text": None if text is None else storable(text)}


def _first_unit(new: NewTrial, trial_id: int, unit_id: int, place: int) -> Unit:
    return Unit(
        id=unit_id,
        study_id=new.study_id,
        trial_id=trial_id,
        number=new.number,
        place=place,
        arm=new.arm,
        purpose=new.purpose,
        operator=new.operator,
        architecture_hash=new.architecture_hash,
        architecture=new.architecture,
        choices=new.choices,
        cheap_values=dict(new.cheap_values),
        recipe=new.recipe,
        seed=new.seed,
        kind=new.kind,
        rung=0,
        steps=new.steps,
        state=UnitState.RUNNING if new.owner else UnitState.QUEUED,
        owner=new.owner,
        attempt=1 if new.owner else 0,
    )


def _added_earlier(connection: Connection, trial_id: int, new: NewTrial) -> TrialAdded:
    of_kind = select(unit.c.id).where(unit.c.trial_id == trial_id, unit.c.kind == new.kind, unit.c.rung == 0)
    first = connection.execute(of_kind).scalar_one()
    return TrialAdded(trial_id, new.number, None if new.failure else units(connection, [first])[0])
