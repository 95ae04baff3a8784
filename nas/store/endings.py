"""How a unit ends: done with its values, failed, or back in the queue because its worker was lost.

Only the holder of the lease may end a unit: the owner and the attempt must be those of the row. A caller who ends a
unit twice, because the first answer was lost, gets the first answer again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, bindparam, insert, select, update

from nas.store.models import metric, objective_value, trial, unit
from nas.store.records import TrialState, UnitOutcome, UnitState
from nas.store.studies import next_in_sequence
from nas.store.types import now, storable

CURVE = "training loss"  # the name under which a curve is kept among the metrics


class Ending(StrEnum):
    """What became of a unit that was reported as failed."""

    FAILED = "failed"
    REQUEUED = "requeued"
    LOST = "lost"  # the lease was no longer the caller's: nothing was changed


_UNIT = (
    select(
        unit.c.study_id,
        unit.c.trial_id,
        unit.c.rung,
        unit.c.steps,
        unit.c.state,
        unit.c.owner,
        unit.c.attempts,
        unit.c.released,
        unit.c.sequence,
    )
    .where(unit.c.id == bindparam("unit_id"))
    .with_for_update(key_share=True)
)


def finish(connection: Connection, unit_id: int, owner: str, attempt: int, outcome: UnitOutcome) -> int | None:
    """Record what the unit gave -> its place in the study's sequence, None when the lease was lost."""
    row = connection.execute(_UNIT, {"unit_id": unit_id}).one()
    if row.attempts != attempt or row.owner != owner:
        return None
    if row.state != UnitState.RUNNING:
        return row.sequence if row.state == UnitState.DONE else None
    sequence = next_in_sequence(connection, row.study_id)
    uri, sha256 = outcome.checkpoint or (None, None)
    done = {"state": UnitState.DONE, "lease_expires": None, "sequence": sequence, "seconds": outcome.seconds}
    done |= {"device": outcome.device, "checkpoint_uri": uri, "checkpoint_sha256": sha256}
    connection.execute(update(unit).where(unit.c.id == unit_id).values(done))
    values = _advance(connection, row.trial_id, row.rung, outcome.last) | dict(outcome.objectives)
    _insert_values(connection, unit_id, row.steps, values, outcome)
    return sequence


def fail(
    connection: Connection,
    unit_id: int,
    owner: str,
    attempt: int,
    error: tuple[str, str],
    seconds: float | None,
    max_attempts: int | None,
) -> Ending:
    """Record why the unit gave nothing. Below `max_attempts` it is queued again, otherwise the trial has failed."""
    row = connection.execute(_UNIT, {"unit_id": unit_id}).one()
    if row.attempts != attempt:
        return Ending.LOST
    if row.state == UnitState.QUEUED:  # put back by an earlier run of this call
        return Ending.REQUEUED
    if row.owner != owner or row.state == UnitState.DONE:
        return Ending.LOST
    if row.state == UnitState.FAILED:
        return Ending.FAILED
    if max_attempts is not None and row.attempts - row.released < max_attempts:
        back = {"state": UnitState.QUEUED, "owner": None, "lease_expires": None}
        connection.execute(update(unit).where(unit.c.id == unit_id).values(back))
        return Ending.REQUEUED
    kind, text = error[0], storable(error[1])
    failed: dict[str, Any] = {"error_kind": kind, "error_text": text}
    ended = {"lease_expires": None, "seconds": seconds, "sequence": next_in_sequence(connection, row.study_id)}
    connection.execute(
        update(unit).where(unit.c.id == unit_id).values(failed | ended | {"state": UnitState.FAILED}),
    )
    failed |= {"state": TrialState.FAILED, "finished_at": now()}
    connection.execute(update(trial).where(trial.c.id == row.trial_id).values(failed))
    return Ending.FAILED


def check_finite(objectives: Mapping[str, float]) -> None:
    """An objective that is not a number cannot be compared: such a unit has failed, and is recorded so."""
    for name, value in objectives.items():
        if not math.isfinite(value):
            raise ValueError(f"Objective {name!r} must be finite, but got {value!r}: record the unit as failed.")


def _advance(connection: Connection, trial_id: int, rung: int, last: bool) -> dict[str, float]:
    """Move the trial on -> the objectives that were known before it was trained."""
    values: dict[str, Any] = {"rung": rung}
    if last:
        values |= {"state": TrialState.COMPLETE, "finished_at": now()}
    statement = update(trial).where(trial.c.id == trial_id, trial.c.state == TrialState.RUNNING).values(values)
    return connection.execute(statement.returning(trial.c.cheap_values)).scalar_one()


def _insert_values(
    connection: Connection, unit_id: int, steps: int, values: Mapping[str, float], outcome: UnitOutcome
) -> None:
    if values:
        rows = [{"unit_id": unit_id, "name": name, "value": value} for name, value in values.items()]
        connection.execute(insert(objective_value), rows)
    measured = {(CURVE, step): value for step, value in outcome.curve}
    measured |= {(name, steps): value for name, value in outcome.metrics.items()}
    if measured:
        rows = [
            {"unit_id": unit_id, "name": name, "step": step, "value": None if math.isnan(value) else value}
            for (name, step), value in measured.items()
        ]
        connection.execute(insert(metric), rows)
