"""Adds a value to a trial after it was proposed: of a new objective, or of one that a machine finds later."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy import Connection, insert, select, update

from nas.errors import StoreError
from nas.store.endings import check_finite
from nas.store.models import objective_value, study, trial, unit
from nas.store.records import UnitKind, UnitState
from nas.store.studies import change, lock, next_in_sequence
from nas.store.types import storable


def add(
    connection: Connection,
    trial_id: int,
    objective: Mapping[str, str],
    value: float,
    evidence: Mapping[str, Any] | None = None,
    *,
    rung: int | None = None,
    check: Callable[[Mapping[str, Any]], None] | None = None,
) -> bool:
    """Give the trial, and each of its finished rungs, the value -> whether nothing was known.

    objective: {"name": ..., "direction": "minimize" | "maximize"}; the study's list gets it if it is not there.
    evidence: how it was measured. rung: 1 + the place of an objective that the search waits for: the value is then in
    the study's sequence, as a probe that is done, unless there is a probe that found none; None adds none. check:
    called with the evidence of the study's first value of this name, if it has any; what it raises passes through, and
    nothing changes. Raises ValueError for a value that is not finite, StoreError if the trial was deleted.
    """
    name, own = objective["name"], trial.c.id == trial_id
    check_finite({name: value})
    lock(connection, _study_of(connection, trial_id))
    columns = trial.c.study_id, trial.c.cheap_values, trial.c.evidence
    row = connection.execute(select(*columns).where(own)).one()
    _declare(connection, row.study_id, objective)
    if name in row.cheap_values or (rung is not None and _has_probe(connection, trial_id, rung)):
        return False
    if check is not None and (first := _first_evidence(connection, row.study_id, name)) is not None:
        check(first)
    changes: dict[str, Any] = {"cheap_values": row.cheap_values | {name: value}}
    if evidence is not None:
        changes["evidence"] = (row.evidence or {}) | {name: dict(evidence)}
    connection.execute(update(trial).where(own).values(changes))
    done = select(unit.c.id).where(
        unit.c.trial_id == trial_id, unit.c.kind == UnitKind.TRAIN, unit.c.state == UnitState.DONE
    )
    found = list(connection.execute(done).scalars())
    if rung is not None:
        found.append(_probe(connection, row.study_id, trial_id, rung, {"state": UnitState.DONE}))
    if found:
        rows = [{"unit_id": unit_id, "name": name, "value": float(value)} for unit_id in found]
        connection.execute(insert(objective_value), rows)
    return True


def add_none(connection: Connection, trial_id: int, rung: int, failure: tuple[str, str]) -> bool:
    """Record that a trial has no value of an objective that the search waits for -> whether that was unknown.

    It is a failed probe in the study's sequence. rung: as in `add`. failure: (kind, text).
    """
    study_id = _study_of(connection, trial_id)
    lock(connection, study_id)
    if _has_probe(connection, trial_id, rung):
        return False
    why = {"error_kind": failure[0], "error_text": storable(failure[1])}
    _probe(connection, study_id, trial_id, rung, {"state": UnitState.FAILED, **why})
    return True


def _first_evidence(connection: Connection, study_id: int, name: str) -> Mapping[str, Any] | None:
    known = select(trial.c.evidence).where(trial.c.study_id == study_id, trial.c.evidence.is_not(None))
    # Of the query: as an option of the connection it would hold for its later statements too.
    with connection.execute(known.order_by(trial.c.number).execution_options(yield_per=100)) as rows:
        return next((each[name] for each in rows.scalars() if each and name in each), None)


def _has_probe(connection: Connection, trial_id: int, rung: int) -> bool:
    same = select(unit.c.id).where(unit.c.trial_id == trial_id, unit.c.kind == UnitKind.PROBE, unit.c.rung == rung)
    return connection.execute(same).first() is not None


def _study_of(connection: Connection, trial_id: int) -> int:
    """Raises StoreError if there is no such trial any more."""
    found: int | None = connection.execute(select(trial.c.study_id).where(trial.c.id == trial_id)).scalar()
    if found is None:
        raise StoreError("The trial is not in the database any more: its study was deleted.")
    return found


def _probe(connection: Connection, study_id: int, trial_id: int, rung: int, ended: Mapping[str, Any]) -> int:
    """Insert a probe that has ended -> its id."""
    row = {"study_id": study_id, "trial_id": trial_id, "kind": UnitKind.PROBE, "rung": rung, "steps": 0, "token": ""}
    row |= {"attempts": 0, "released": 0, "sequence": next_in_sequence(connection, study_id), **ended}
    return connection.execute(insert(unit).values(row).returning(unit.c.id)).scalar_one()


def _declare(connection: Connection, study_id: int, objective: Mapping[str, str]) -> None:
    known = connection.execute(select(study.c.objectives).where(study.c.id == study_id)).scalar_one()
    if all(each["name"] != objective["name"] for each in known):
        change(connection, study_id, objectives=[*known, dict(objective)])
