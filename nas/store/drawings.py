"""Drawings of architectures: their lines with costs, as plain data, so that they can be shown without torch."""

from __future__ import annotations

import base64
import zlib
from typing import Any

from sqlalchemy import Connection, select
from sqlalchemy import text as sql

from nas.store.models import drawing
from nas.store.types import canonical
from nas.store.upkeep import checksums
from nas.store.upkeep.filling import loaded

MOST = 8 * 2**20  # bytes that a drawing may unpack to
_KEEP = sql(
    "INSERT INTO drawing (study_id, architecture_hash, packed, checksum)"
    " VALUES (:study_id, :architecture_hash, :packed, :checksum) ON CONFLICT DO NOTHING"
)


def row(study_id: int, architecture_hash: str, document: Any) -> dict[str, Any]:
    """The row of a drawing. The lines repeat themselves, so packing saves nine tenths."""
    packed = base64.b85encode(zlib.compress(canonical(document).encode())).decode()
    found = {"study_id": study_id, "architecture_hash": architecture_hash, "packed": packed}
    return found | {"checksum": checksums.of_row(found, checksums.DRAWING)}


def add(connection: Connection, study_id: int, architecture_hash: str, document: Any) -> None:
    """Store a drawing, unless the study has one of this architecture."""
    connection.execute(_KEEP, row(study_id, architecture_hash, document))


def read(connection: Connection, study_id: int, architecture_hash: str) -> Any:
    """The drawing of an architecture; None if there is none, or it is damaged, which `damage` reports."""
    own = drawing.c.study_id == study_id, drawing.c.architecture_hash == architecture_hash
    packed = connection.execute(select(drawing.c.packed).where(*own)).scalar()
    if packed is None:
        return None
    unpacking = zlib.decompressobj()
    try:
        found = unpacking.decompress(base64.b85decode(packed), MOST)
    except (ValueError, zlib.error):
        return None
    document = loaded(found.decode()) if unpacking.eof else None
    return document if isinstance(document, dict) else None
