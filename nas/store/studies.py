"""Writes studies: creates them, replaces their configuration, adds versions of their space."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, bindparam, insert, select, update

from nas.errors import UsageError
from nas.store.models import space_version, study
from nas.store.types import now

# These statements are on the hot path. They are built once, because building one costs more than running it.
_LOCKED = select(study.c.id).where(study.c.id == bindparam("study")).with_for_update(key_share=True)
_COUNT_UP = (
    update(study)
    .where(study.c.id == bindparam("study"))
    .values(sequence=study.c.sequence + 1)
    .returning(study.c.sequence)
)


def create(connection: Connection, values: dict[str, Any], space: str) -> int:
    """Insert the study and version 0 of its space -> its id. `values` include the `token` of the call.

    Raises UsageError if the name is taken.
    """
    existing = connection.execute(select(study.c.id, study.c.token).where(study.c.name == values["name"])).first()
    if existing is not None:
        if existing.token == values["token"]:
            return existing.id
        raise UsageError(f"A study named {values['name']!r} exists already: open it, or choose another name.")
    row = {**values, "sequence": 0, "created_at": now()}
    study_id = connection.execute(insert(study).values(row).returning(study.c.id)).scalar_one()
    _add_space(connection, study_id, 0, space)
    return study_id


def change(connection: Connection, study_id: int, values: dict[str, Any]) -> None:
    """Replace the configuration or the hash of the data."""
    connection.execute(update(study).where(study.c.id == study_id).values(values))


def grow_space(connection: Connection, study_id: int, space: str) -> int:
    """The number of the space's version with this text: a new version, unless the newest has the same text."""
    lock(connection, study_id)
    newest = connection.execute(
        select(space_version.c.number, space_version.c.text)
        .where(space_version.c.study_id == study_id)
        .order_by(space_version.c.number.desc())
        .limit(1)
    ).one()
    if newest.text == space:
        return newest.number
    _add_space(connection, study_id, newest.number + 1, space)
    return newest.number + 1


def lock(connection: Connection, study_id: int) -> None:
    """Lock the study's row until the transaction ends. SQLite ignores this: it allows one writer at a time."""
    connection.execute(_LOCKED, {"study": study_id}).one()


def next_in_sequence(connection: Connection, study_id: int) -> int:
    """The next place in the sequence of ended units. The row is locked until the commit, so places follow commits."""
    return connection.execute(_COUNT_UP, {"study": study_id}).scalar_one()


def _add_space(connection: Connection, study_id: int, number: int, space: str) -> None:
    row = {"study_id": study_id, "number": number, "text": space, "created_at": now()}
    connection.execute(insert(space_version).values(row))
