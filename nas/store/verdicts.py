"""How the finals of studies ended: rows are added, never changed, and the newest counts."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, insert, select

from nas.store.models import verdict
from nas.store.records import StoredVerdict
from nas.store.types import now


def add(connection: Connection, study_id: int, document: dict[str, Any], token: str) -> None:
    """Insert a verdict; a retry of the same call inserts nothing."""
    if connection.execute(select(verdict.c.id).where(verdict.c.token == token).limit(1)).first() is None:
        row = {"study_id": study_id, "created_at": now(), "document": document, "token": token}
        connection.execute(insert(verdict).values(row))


def newest(connection: Connection, study_id: int) -> StoredVerdict | None:
    """The newest verdict of a study, None if there is none."""
    statement = select(verdict.c.created_at, verdict.c.document).where(verdict.c.study_id == study_id)
    row = connection.execute(statement.order_by(verdict.c.id.desc()).limit(1)).first()
    return None if row is None else StoredVerdict(row.created_at, row.document)
