"""The scores of single held-out documents, kept with the units of the finals, so that intervals need no second run."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from sqlalchemy import Connection, insert, select

from nas.store.models import document_score, trial, unit

if TYPE_CHECKING:
    from nas.documents import Documents


def add(connection: Connection, unit_id: int, documents: Mapping[str, Documents]) -> None:
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


def of_trials(connection: Connection, study_id: int, numbers: Collection[int], split: str) -> dict[int, Documents]:
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
