"""The drawing of an architecture belongs to its study, the first one is kept, and a damaged one is not read."""

import base64
import zlib

import pytest
from sqlalchemy import text

from nas.store import drawings
from nas.store.upkeep import checksums

LINES = {"length": 8, "lines": [[0, f"block {number}", "", [1, 8, 4], 1, False, [1] * 6] for number in range(60)]}


def drawn(store, study, number):
    return store.drawing(study.id, store.trial(study.id, number).architecture_hash)


def test_the_first_drawing_of_an_architecture_is_kept(store, study, add):
    add(store, study, 0, drawing=LINES)
    add(store, study, 1, architecture=("0000", "width: 0"), seed=1, drawing={"length": 9})
    add(store, study, 2)

    assert drawn(store, study, 0) == drawn(store, study, 1) == LINES
    assert drawn(store, study, 2) is None
    with store.database.engine.connect() as connection:
        assert connection.execute(text("SELECT length(packed) FROM drawing")).scalar() < 1000


def test_studies_have_drawings_of_their_own(store, study, add):
    other = store.create_study("other", {}, "kind: decoder", 7, study.objectives)
    add(store, study, 0, drawing=LINES)
    add(store, other, 0, drawing={"length": 9})
    store.delete_study(study.id)

    assert drawn(store, other, 0) == {"length": 9}
    with store.database.engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM drawing")).scalar() == 1


@pytest.mark.parametrize(
    "packed", ["", "?", "substr(packed, 1, 60)", "'c' || packed", "replace(packed, substr(packed, 40, 1), '#')"]
)
def test_a_damaged_drawing_is_not_read(store, study, add, packed):
    add(store, study, 0, drawing=LINES)
    value = packed if "packed" in packed else f"'{packed}'"
    with store.database.engine.begin() as connection:
        connection.execute(text(f"UPDATE drawing SET packed = {value}"))

    assert drawn(store, study, 0) is None


def test_the_drawing_of_another_architecture_is_not_read(store, study, add):
    """It can be unpacked, and only its checksum says that its numbers are those of another row."""
    add(store, study, 0, drawing=LINES)
    add(store, study, 1, drawing={"length": 9})
    with store.database.engine.begin() as connection:
        connection.execute(text("UPDATE drawing SET packed = (SELECT min(packed) FROM drawing)"))

    assert [drawn(store, study, 0), drawn(store, study, 1)].count(None) == 1


@pytest.mark.parametrize(
    "content", [b"[" * 100_000, b"{}".ljust(drawings.MOST + 1), b"\xff", b"[1]", b"{"], ids=lambda content: content[:2]
)
def test_a_drawing_of_another_program_is_not_read(store, study, add, content):
    """Its checksum is right. It is nested too deep, too large, no text, no drawing, or not whole."""
    add(store, study, 0, drawing=LINES)
    found = {"study_id": study.id, "architecture_hash": store.trial(study.id, 0).architecture_hash}
    found["packed"] = base64.b85encode(zlib.compress(content)).decode()
    values = found | {"checksum": checksums.of_row(found, checksums.DRAWING)}
    with store.database.engine.begin() as connection:
        connection.execute(text("UPDATE drawing SET packed = :packed, checksum = :checksum"), values)

    assert drawn(store, study, 0) is None
