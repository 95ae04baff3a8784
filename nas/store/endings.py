"""How a unit ends: done with its values, failed, or back in the queue because its worker was lost.

Only the holder of the lease may end a unit: the owner and the attempt must be those of the row. A caller that ends a
unit twice, because the first answer was lost, gets the first answer again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, bindparam, insert, select, type_coerce, update

from nas.metrics import CURVE
from nas.store.finals import add_documents
from nas.store.leases import NO_PROGRESS
from nas.store.models import metric, objective_value, trial, unit
from nas.store.records import TrialState, UnitKind, UnitState
from nas.store.studies import next_in_sequence
from nas.store.types import MOST_NAME, Moment, now, storable

if TYPE_CHECKING:
    from nas.documents import Documents


class Ending(StrEnum):
    """What happened to a unit that was reported as failed."""

    FAILED = "failed"
    REQUEUED = "requeued"
    LOST = "lost"  # the lease was no longer the caller's: nothing was changed


_UNIT = (
    select(
        *unit.c["study_id", "trial_id", "kind", "rung", "steps", "state", "owner"],
        *unit.c["attempts", "released", "sequence", "token"],
        type_coerce(now(), Moment).label("time"),
    )
    .where(unit.c.id == bindparam("unit_id"))
    .with_for_update(key_share=True)
)

# These statements are on the hot path. They are built once, because building one costs more than running it.
_END_UNIT = update(unit).where(unit.c.id == bindparam("unit_id"))
_ADVANCE = (
    update(trial)
    .where(trial.c.id == bindparam("trial_id"), trial.c.state == TrialState.RUNNING)
    .returning(trial.c.cheap_values)
)
_INSERT_UNIT = insert(unit)
_INSERT_OBJECTIVES = insert(objective_value)
_INSERT_METRICS = insert(metric)


def finish(
    connection: Connection,
    unit_id: int,
    owner: str,
    attempt: int,
    objectives: Mapping[str, float],
    metrics: Mapping[str, float] | None = None,
    *,
    last: bool,
    then: int | None = None,
    curve: Sequence[tuple[int, float]] = (),
    checkpoint: tuple[str, str] | None = None,
    seconds: float = 0.0,
    device: str = "",
    by_document: Mapping[str, Documents] | None = None,
    evidence: Mapping[str, Any] | None = None,
) -> int | None:
    """Record what the unit gave -> its place in the study's sequence, None if the lease was lost.

    The same call again gives the same answer. curve: (step, training loss). checkpoint: (uri, SHA-256). last: no unit
    follows, so the trial is complete. then: after a probe, the steps of the training unit that follows; it is queued in
    the same transaction, so no crash can come between the two. by_document: the scores of single held-out documents, by
    split. evidence: of a probe, how measured values were found, by objective, plain data. Raises ValueError for an
    objective that is not finite.
    """
    check_finite(objectives)
    row = connection.execute(_UNIT, {"unit_id": unit_id}).one()
    if row.attempts != attempt or row.owner != owner:
        return None
    if row.state != UnitState.RUNNING:
        return row.sequence if row.state == UnitState.DONE else None
    sequence = next_in_sequence(connection, row.study_id)
    uri, sha256 = checkpoint or (None, None)
    done: dict[str, Any] = {"state": UnitState.DONE, "lease_expires": None, "sequence": sequence, "seconds": seconds}
    done |= {"device": device, "checkpoint_uri": uri, "checkpoint_sha256": sha256}
    if row.kind == UnitKind.PROBE:
        _learn_before_training(connection, row, objectives, then, evidence or {})
        values = dict(objectives)
    else:
        moved: dict[str, Any] = {"rung": row.rung, "steps": row.steps, "last_unit": unit_id}
        if last:
            moved |= {"state": TrialState.COMPLETE, "finished_at": row.time}
        values = connection.execute(_ADVANCE, moved | {"trial_id": row.trial_id}).scalar_one() | dict(objectives)
    _insert_values(connection, unit_id, row.steps, values, metrics or {}, curve)
    add_documents(connection, unit_id, by_document or {})
    connection.execute(_END_UNIT, done | NO_PROGRESS | {"unit_id": unit_id})
    return sequence


def _learn_before_training(
    connection: Connection, probe: Any, objectives: Mapping[str, float], steps: int | None, evidence: Mapping[str, Any]
) -> None:
    """Keep what a probe found among the trial's values, and queue the trial's first training unit."""
    assert steps is not None  # a probe is always followed by training
    own = select(trial.c.cheap_values, trial.c.evidence).where(trial.c.id == probe.trial_id)
    known = connection.execute(own).one()
    values: dict[str, Any] = {"cheap_values": known.cheap_values | dict(objectives)}
    if evidence:
        values["evidence"] = (known.evidence or {}) | dict(evidence)
    connection.execute(update(trial).where(trial.c.id == probe.trial_id).values(values))
    row = {"study_id": probe.study_id, "trial_id": probe.trial_id, "kind": UnitKind.TRAIN, "rung": 0, "steps": steps}
    row |= {"state": UnitState.QUEUED, "owner": None, "lease_expires": None, "attempts": 0, "released": 0}
    connection.execute(_INSERT_UNIT, row | {"token": probe.token})


def fail(
    connection: Connection,
    unit_id: int,
    owner: str,
    attempt: int,
    kind: str,
    text: str,
    seconds: float | None = None,
    *,
    requeue: bool = False,
    max_attempts: int = 3,
) -> Ending:
    """Record why the unit failed. requeue: queue it again if it was tried less than `max_attempts` times, which leaves
    its trial as it is; otherwise the trial has failed."""
    row = connection.execute(_UNIT, {"unit_id": unit_id}).one()
    if row.attempts != attempt:
        return Ending.LOST
    if row.state == UnitState.QUEUED:  # put back by an earlier run of this call
        return Ending.REQUEUED
    if row.owner != owner or row.state == UnitState.DONE:
        return Ending.LOST
    if row.state == UnitState.FAILED:
        return Ending.FAILED
    if requeue and row.attempts - row.released < max_attempts:
        back = {"state": UnitState.QUEUED, "owner": None, "lease_expires": None}
        connection.execute(_END_UNIT, back | NO_PROGRESS | {"unit_id": unit_id})
        return Ending.REQUEUED
    why = {"error_kind": kind, "error_text": storable(text)}
    ended: dict[str, Any] = {"state": UnitState.FAILED, "lease_expires": None, "seconds": seconds}
    ended["sequence"] = next_in_sequence(connection, row.study_id)
    connection.execute(_END_UNIT, ended | why | NO_PROGRESS | {"unit_id": unit_id})
    ended = {"state": TrialState.FAILED, "finished_at": row.time}
    connection.execute(_ADVANCE, ended | why | {"trial_id": row.trial_id})
    return Ending.FAILED


def _insert_values(
    connection: Connection,
    unit_id: int,
    steps: int,
    values: Mapping[str, float],
    metrics: Mapping[str, float],
    curve: Sequence[tuple[int, float]],
) -> None:
    """Insert the objectives, and the metrics with the curve."""
    objectives = [{"unit_id": unit_id, "name": name, "value": float(value)} for name, value in values.items()]
    if objectives:
        connection.execute(_INSERT_OBJECTIVES, objectives)
    measured = {(CURVE, step): float(value) for step, value in curve}
    measured |= {(storable(name, MOST_NAME), steps): float(value) for name, value in metrics.items()}
    rows: list[dict[str, Any]] = [
        {"unit_id": unit_id, "name": name, "step": step, "value": None if math.isnan(value) else value}
        for (name, step), value in measured.items()
    ]
    if rows:
        connection.execute(_INSERT_METRICS, rows)


def check_finite(objectives: Mapping[str, float]) -> None:
    """Raise ValueError if an objective is not finite: such a unit must be recorded as failed."""
    for name, value in objectives.items():
        if not math.isfinite(value):
            raise ValueError(f"Objective {name!r} must be finite, but got {value!r}: record the unit as failed.")
