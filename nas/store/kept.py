"""The checkpoints of a study, as its database knows them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import Connection, select

from nas.store.models import study, trial, unit
from nas.store.records import TrialState


@dataclass(frozen=True)
class Kept:
    """A checkpoint: its trial, its rung, and how far that trial is."""

    number: int
    purpose: str
    state: TrialState
    highest: int | None  # the highest finished rung of the trial
    rung: int
    uri: str


def checkpoints(connection: Connection, study_id: int) -> list[Kept]:
    """The checkpoints of a study that no other study of this database has too, by trial and rung."""
    columns = trial.c.number, trial.c.purpose, trial.c.state, trial.c.rung, unit.c.rung, unit.c.checkpoint_uri
    statement = select(*columns).join(trial, trial.c.id == unit.c.trial_id).order_by(trial.c.number, unit.c.rung)
    statement = statement.where(unit.c.study_id == study_id, unit.c.checkpoint_uri.is_not(None))
    shared = _of_others(connection, study_id)
    return [
        Kept(number, purpose, TrialState(state), highest, rung, uri)
        for number, purpose, state, highest, rung, uri in connection.execute(statement)
        if uri not in shared
    ]


def _of_others(connection: Connection, study_id: int) -> Collection[str]:
    if connection.execute(select(study.c.id).where(study.c.id != study_id).limit(1)).first() is None:
        return ()
    uris = select(unit.c.checkpoint_uri).where(unit.c.study_id != study_id, unit.c.checkpoint_uri.is_not(None))
    return set(connection.execute(uris).scalars())
