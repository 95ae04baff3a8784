"""Changes of a trial: added with its first unit, promoted to the next rung, stopped when the search ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Insert, Select, bindparam, exists, func, insert, select, type_coerce, update
from sqlalchemy import text as sql

from nas.store import drawings
from nas.store.endings import check_finite
from nas.store.leases import units
from nas.store.models import space_version, trial, unit
from nas.store.records import (
    LEASE_SECONDS,
    MAIN,
    Refusal,
    TrialAdded,
    TrialRefused,
    TrialState,
    Unit,
    UnitKind,
    UnitState,
)
from nas.store.studies import checked_seed, lock, next_in_sequence
from nas.store.types import Moment, now, storable

_KEEP_ARCHITECTURE = sql("INSERT INTO architecture (hash, text) VALUES (:hash, :text) ON CONFLICT DO NOTHING")
_OF_TRIAL = (  # the fields of a unit that are those of its trial
    *("study_id", "number", "place", "arm", "purpose", "operator", "architecture_hash", "choices", "cheap_values"),
    *("recipe", "seed"),
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


def add(
    connection: Connection,
    token: str,
    study_id: int,
    number: int,
    architecture: tuple[str, str],
    *,
    seed: int,
    purpose: str,
    operator: str,
    choices: Any,
    known_results: int,
    steps: int,
    known_trials: int | None = None,
    arm: str = MAIN,
    kind: UnitKind = UnitKind.TRAIN,
    parents: Sequence[int] = (),
    owner: str | None = None,
    lease_seconds: float = LEASE_SECONDS,
    cheap_values: Mapping[str, float] | None = None,
    evidence: Mapping[str, Any] | None = None,
    limit: int | None = None,
    failure: tuple[str, str] | None = None,
    space_version: int | None = None,
    costs: tuple[int, float] | None = None,
    drawing: Mapping[str, Any] | None = None,
    variant: str = "",
    recipe: Mapping[str, Any] | None = None,
) -> TrialAdded | TrialRefused:
    """Add a trial (architecture: (hash, text)) with its first unit, leased to `owner` if there is one, or say why not.

    steps, kind: of that unit. limit: the largest number of trials of this arm and purpose. known_results, known_trials:
    what the strategy knew, see `Trial`. failure: (kind, text) of a proposal that cannot be trained, which is recorded
    as failed. evidence: how values that were measured were found, by objective, plain data. space_version: None is the
    newest. costs: parameters, and FLOPs of one training step. drawing: what `searchspace.lines.kept` reads, plain data.
    variant: what tells it apart from a trial of the same architecture, seed and purpose. recipe: options that replace
    those of the study's recipe. Raises ValueError for a seed or a value that cannot be stored.
    """
    check_finite(cheap_values or {})
    hash, text = architecture
    of_trial = {"number": number, "arm": arm, "purpose": purpose, "seed": checked_seed(seed), "variant": variant}
    lock(connection, study_id)  # number, place and uniqueness hold until the commit
    before = connection.execute(_SURROUNDINGS, of_trial | {"study": study_id, "hash": hash, "token": token}).one()
    if before.own_id is not None:  # committed by an earlier run of this call
        return _added_earlier(connection, before.own_id, number, kind, failure is not None)
    if before.same_number is not None:
        return TrialRefused(Refusal.NUMBER_TAKEN, number)
    if before.same_architecture is not None:
        return TrialRefused(Refusal.ARCHITECTURE_KNOWN, before.same_architecture)
    if limit is not None and before.place >= limit:
        return TrialRefused(Refusal.LIMIT_REACHED)
    connection.execute(_KEEP_ARCHITECTURE, {"hash": hash, "text": text})
    if drawing is not None:
        drawings.add(connection, study_id, hash, drawing)
    parameters, step_flops = costs or (None, None)
    row = of_trial | {
        "study_id": study_id,
        "place": before.place,
        "architecture_hash": hash,
        "state": TrialState.FAILED if failure else TrialState.RUNNING if owner else TrialState.WAITING,
        "operator": operator,
        "parents": list(parents),
        "choices": choices,
        "space_version": before.space_version if space_version is None else space_version,
        "known_results": known_results,
        "known_trials": known_trials,
        "cheap_values": dict(cheap_values or {}),
        "evidence": dict(evidence) if evidence else None,
        "parameters": parameters,
        "step_flops": step_flops,
        "recipe": None if recipe is None else dict(recipe),
        "created_at": before.time,
        "started_at": before.time if owner and not failure else None,
        "finished_at": before.time if failure else None,
        "token": token,
    }
    trial_id = _insert(connection, _INSERT_TRIAL, row | _error(failure))
    first = {"study_id": study_id, "trial_id": trial_id, "kind": kind, "rung": 0, "steps": steps, "token": token}
    if failure:
        ended = {"state": UnitState.FAILED, "attempts": 0, "released": 0, "owner": None, "lease_expires": None}
        ended["sequence"] = next_in_sequence(connection, study_id)
        _insert(connection, _INSERT_UNIT, first | ended | _error(failure))
        return TrialAdded(trial_id, number, None)
    leased = _lease_of(owner, before.time, lease_seconds)
    unit_id = _insert(connection, _INSERT_UNIT, first | leased | _error(None))
    # Read back it would be the same, but this is on the hot path of a search.
    fields: dict[str, Any] = {name: row[name] for name in _OF_TRIAL} | {"architecture": text, "trial_id": trial_id}
    fields |= {"id": unit_id, "kind": kind, "rung": 0, "steps": steps, "owner": owner}
    return TrialAdded(trial_id, number, Unit(**fields, state=leased["state"], attempt=leased["attempts"]))


def promote(
    connection: Connection,
    token: str,
    trial_id: int,
    rung: int,
    steps: int,
    *,
    owner: str | None = None,
    lease_seconds: float = LEASE_SECONDS,
) -> Unit | None:
    """Queue `rung` of a running trial that finished the rung below, or lease it to `owner`.

    None if there is such a unit already, or if it cannot run.
    """
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
    made = _insert(connection, _INSERT_UNIT, row | _lease_of(owner, held.time, lease_seconds))
    return units(connection, [made])[0]


def stop(connection: Connection, study_id: int) -> int:
    """Stop, at the end of a search, every running trial that has no unit to run -> how many."""
    is_open = exists().where(unit.c.trial_id == trial.c.id, unit.c.state.in_([UnitState.QUEUED, UnitState.RUNNING]))
    statement = (
        update(trial)
        .where(trial.c.study_id == study_id, trial.c.state == TrialState.RUNNING, ~is_open)
        .values(state=TrialState.STOPPED, finished_at=now())
    )
    return connection.execute(statement).rowcount


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


def _added_earlier(connection: Connection, trial_id: int, number: int, kind: UnitKind, failed: bool) -> TrialAdded:
    of_kind = select(unit.c.id).where(unit.c.trial_id == trial_id, unit.c.kind == kind, unit.c.rung == 0)
    first = connection.execute(of_kind).scalar_one()
    return TrialAdded(trial_id, number, None if failed else units(connection, [first])[0])
