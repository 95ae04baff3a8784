"""The checkpoints of a study, as its database knows them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, select

from nas.store.models import study, trial, unit, unit_is_open
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


def named(connection: Connection, name: str) -> set[str]:
    """The checkpoints of the study called `name`, shared ones too."""
    units = select(unit.c.checkpoint_uri).join(study, study.c.id == unit.c.study_id)
    return set(connection.execute(units.where(study.c.name == name, unit.c.checkpoint_uri.is_not(None))).scalars())


def progress(connection: Connection, name: str) -> tuple[datetime, int] | None:
    """When the study called `name` was created, and how many of its units have ended; None if there is none."""
    found = connection.execute(select(study.c.created_at, study.c.sequence).where(study.c.name == name)).first()
    return None if found is None else (found.created_at, found.sequence)


def is_open(connection: Connection, name: str) -> bool:
    """Whether a unit of the study called `name` waits or runs."""
    units = select(unit.c.id).join(study, study.c.id == unit.c.study_id).where(study.c.name == name, unit_is_open)
    return connection.execute(units.limit(1)).first() is not None


def _of_others(connection: Connection, study_id: int) -> Collection[str]:
    if connection.execute(select(study.c.id).where(study.c.id != study_id).limit(1)).first() is None:
        return ()
    uris = select(unit.c.checkpoint_uri).where(unit.c.study_id != study_id, unit.c.checkpoint_uri.is_not(None))
    return set(connection.execute(uris).scalars())
