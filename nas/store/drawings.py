"""Drawings of architectures: their lines with costs, as plain data, so that they can be shown without torch."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

from sqlalchemy import Connection, select
from sqlalchemy import text as sql

from nas.store.models import drawing
from nas.store.types import canonical

_KEEP = sql(
    "INSERT INTO drawing (study_id, architecture_hash, packed) VALUES (:study_id, :architecture_hash, :packed)"
    " ON CONFLICT DO NOTHING"
)


def row(study_id: int, architecture_hash: str, document: Any) -> dict[str, Any]:
    """The row of a drawing. The lines repeat themselves, so packing saves nine tenths."""
    packed = base64.b85encode(zlib.compress(canonical(document).encode())).decode()
    return {"study_id": study_id, "architecture_hash": architecture_hash, "packed": packed}


def add(connection: Connection, study_id: int, architecture_hash: str, document: Any) -> None:
    """Store a drawing, unless the study has one of this architecture."""
    connection.execute(_KEEP, row(study_id, architecture_hash, document))


def read(connection: Connection, study_id: int, architecture_hash: str) -> Any:
    """The plain data of `searchspace.lines.kept` for an architecture; None if there is none."""
    own = drawing.c.study_id == study_id, drawing.c.architecture_hash == architecture_hash
    packed = connection.execute(select(drawing.c.packed).where(*own)).scalar()
    return None if packed is None else json.loads(zlib.decompress(base64.b85decode(packed)))
