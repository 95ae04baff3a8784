"""Writes studies: creates them, replaces their configuration, adds versions of their space."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, bindparam, insert, select, update
from sqlalchemy import delete as sql_delete

from nas.errors import UsageError
from nas.store.models import (
    architecture,
    document_score,
    drawing,
    metric,
    objective_value,
    space_version,
    study,
    trial,
    unit,
    verdict,
)
from nas.store.types import now

AT_ONCE = 500  # architectures that one statement removes
CHANGEABLE = {"config", "data_hash", "objectives", "ending"}
LARGEST_SEED = 2**63 - 1

# These statements are on the hot path. They are built once, because building one costs more than running it.
_LOCKED = select(study.c.id).where(study.c.id == bindparam("study")).with_for_update(key_share=True)
_COUNT_UP = (
    update(study)
    .where(study.c.id == bindparam("study"))
    .values(sequence=study.c.sequence + 1)
    .returning(study.c.sequence)
)


def create(
    connection: Connection,
    token: str,
    name: str,
    config: dict[str, Any],
    space: str,
    seed: int,
    objectives: list[dict[str, Any]],
    data_hash: str | None,
) -> int:
    """Insert the study and version 0 of its space -> its id.

    Raises UsageError if the name is taken, ValueError if the name or the objectives are missing.
    """
    if not name or not objectives:
        raise ValueError(f"A study needs a name and objectives, but got name={name!r}, objectives={objectives!r}.")
    existing = connection.execute(select(study.c.id, study.c.token).where(study.c.name == name)).first()
    if existing is not None:
        if existing.token == token:
            return existing.id
        raise UsageError(f"A study named {name!r} exists already: open it, or choose another name.")
    row = {"name": name, "config": config, "seed": checked_seed(seed), "objectives": objectives, "token": token}
    row |= {"data_hash": data_hash, "version": _package_version(), "sequence": 0, "created_at": now()}
    study_id = connection.execute(insert(study).values(row).returning(study.c.id)).scalar_one()
    _add_space(connection, study_id, 0, space)
    return study_id


def change(connection: Connection, study_id: int, **values: Any) -> None:
    """Replace `config`, `data_hash`, `objectives` or `ending`. Raises ValueError for any other key."""
    if not values or not values.keys() <= CHANGEABLE:
        raise ValueError(f"Only {', '.join(sorted(CHANGEABLE))} of a study may change, but got {sorted(values)}.")
    connection.execute(update(study).where(study.c.id == study_id).values(values))


def delete(connection: Connection, study_id: int) -> None:
    """Remove a study with all its rows, and the architectures that no other study has.

    Raises UsageError if a unit is leased, because a search is running.
    """
    lock(connection, study_id)
    running = select(unit.c.id).where(
        unit.c.study_id == study_id, unit.c.state == "running", unit.c.lease_expires > now()
    )
    if connection.execute(running.limit(1)).first() is not None:
        raise UsageError("A search is running in this study: stop it first, or wait until its leases run out.")
    units = select(unit.c.id).where(unit.c.study_id == study_id)
    for table in (objective_value, metric, document_score):
        connection.execute(sql_delete(table).where(table.c.unit_id.in_(units)))
    hashes = list(connection.execute(select(trial.c.architecture_hash).where(trial.c.study_id == study_id)).scalars())
    for table in (unit, trial, drawing, space_version, verdict):
        connection.execute(sql_delete(table).where(table.c.study_id == study_id))
    connection.execute(sql_delete(study).where(study.c.id == study_id))
    used = select(trial.c.architecture_hash)
    for first in range(0, len(hashes), AT_ONCE):
        some = hashes[first : first + AT_ONCE]
        unused = architecture.c.hash.in_(some) & architecture.c.hash.not_in(used)
        connection.execute(sql_delete(architecture).where(unused))


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
    """Lock the study's row until the transaction ends. SQLite needs no such lock: it allows one writer at a time."""
    if connection.dialect.name != "sqlite":
        connection.execute(_LOCKED, {"study": study_id}).one()


def next_in_sequence(connection: Connection, study_id: int) -> int:
    """The next place in the sequence of ended units. The row is locked until the commit, so places follow commits."""
    return connection.execute(_COUNT_UP, {"study": study_id}).scalar_one()


def _add_space(connection: Connection, study_id: int, number: int, space: str) -> None:
    row = {"study_id": study_id, "number": number, "text": space, "created_at": now()}
    connection.execute(insert(space_version).values(row))


def checked_seed(seed: int) -> int:
    """`seed`, if a column can hold it. Raises ValueError."""
    if not 0 <= seed <= LARGEST_SEED:
        raise ValueError(f"A seed must be from 0 to 2**63 - 1, but got {seed}.")
    return seed


def _package_version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("tessera-nas")
    except PackageNotFoundError:
        return "unknown"
