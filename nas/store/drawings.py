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
from nas.store.upkeep import checksums

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
    stored = connection.execute(select(drawing).where(*own)).mappings().first()
    try:
        if stored is None or stored["checksum"] != checksums.of_row(dict(stored), checksums.DRAWING):
            return None
        unpacking = zlib.decompressobj()
        found = unpacking.decompress(base64.b85decode(stored["packed"]), MOST)
        document = json.loads(found) if unpacking.eof else None
    except (ValueError, TypeError, RecursionError, zlib.error):
        return None
    return document if isinstance(document, dict) else None
