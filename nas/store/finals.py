"""What the finals keep: the scores of single held-out documents, so that intervals need no second run, and verdicts.

Verdicts are added, never changed, and the newest counts.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, insert, select

from nas.store.models import document_score, trial, unit, verdict
from nas.store.records import StoredVerdict
from nas.store.types import now

if TYPE_CHECKING:
    from nas.documents import Documents


def add_documents(connection: Connection, unit_id: int, documents: Mapping[str, Documents]) -> None:
    """Insert the scores of a unit; documents: by split."""
    rows = [
        {
            "unit_id": unit_id,
            "split": split,
            "metric": each.metric,
            "names": list(each.names),
            "totals": each.totals.tolist(),
            "weights": each.weights.tolist(),
        }
        for split, each in documents.items()
    ]
    if rows:
        connection.execute(insert(document_score), rows)


def documents_of(connection: Connection, study_id: int, numbers: Collection[int], split: str) -> dict[int, Documents]:
    """The scores on a split after the last unit of each of these trials that has any, by number."""
    from nas.documents import Documents  # NumPy, which most commands do not need

    columns = trial.c.number, *(document_score.c[name] for name in ("metric", "names", "totals", "weights"))
    statement = (
        select(*columns)
        .join(unit, unit.c.id == document_score.c.unit_id)
        .join(trial, trial.c.id == unit.c.trial_id)
        .where(trial.c.study_id == study_id, trial.c.number.in_(numbers), document_score.c.split == split)
        .order_by(unit.c.rung)
    )
    return {number: Documents(*scores) for number, *scores in connection.execute(statement)}


def add_verdict(connection: Connection, token: str, study_id: int, document: dict[str, Any]) -> None:
    """Insert how the finals ended, as plain data; a retry of the same call inserts nothing."""
    if connection.execute(select(verdict.c.id).where(verdict.c.token == token).limit(1)).first() is None:
        row = {"study_id": study_id, "created_at": now(), "document": document, "token": token}
        connection.execute(insert(verdict).values(row))


def newest_verdict(connection: Connection, study_id: int) -> StoredVerdict | None:
    """How the finals ended, as stored last; None if no verdict was stored."""
    statement = select(verdict.c.created_at, verdict.c.document).where(verdict.c.study_id == study_id)
    row = connection.execute(statement.order_by(verdict.c.id.desc()).limit(1)).first()
    return None if row is None else StoredVerdict(row.created_at, row.document)
