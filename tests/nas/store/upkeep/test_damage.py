"""Damage in a database is named with its table and row, and a sound database has none."""

import sqlite3

import pytest
from sqlalchemy import text

from nas.documents import Documents
from nas.store import open_reader, open_store
from nas.store.migrate import HEAD, version_of
from nas.store.upkeep.damage import damage
from nas.store.upkeep.filling import ROWS


@pytest.fixture
def searched(store, study, add):
    """A store with two trials that are done, one that waits, and a verdict."""
    for number in range(2):
        add(store, study, number)
        [unit] = store.lease(study.id, "me", 1)
        store.finish(
            unit.id, "me", unit.attempt, {"bits": 1 / 3 + number, "accuracy": -0.0}, {"x": 7.0, "nan": float("nan")},
            curve=[(1, 0.1), (2, 0.2)], last=True, seconds=3,
            by_document={"validation": Documents("bits", ("a", "b"), [0.1, 2.0], [1.0, 3.0])},
        )  # fmt: skip
    add(store, study, 2, drawing={"length": 8})
    store.add_verdict(study.id, {"winner": 0, "lead": 0.1})
    return store


def test_a_sound_database_has_no_damage(searched):
    assert damage(searched.database) == []


CHANGES = {
    "UPDATE objective_value SET value = 0.5 WHERE unit_id = 1 AND name = 'bits'": ("unit", "id 1", "checksum"),
    "UPDATE metric SET value = 8 WHERE unit_id = 2 AND name = 'x'": ("unit", "id 2", "checksum"),
    "UPDATE document_score SET totals = '[0.1,2.5]' WHERE unit_id = 1": ("unit", "id 1", "checksum"),
    "UPDATE unit SET seconds = 4 WHERE id = 1": ("unit", "id 1", "checksum"),
    "UPDATE unit SET checksum = NULL WHERE id = 1": ("unit", "id 1", "no checksum"),
    'UPDATE verdict SET document = \'{"winner":1,"lead":0.1}\'': ("verdict", "id 1", "checksum"),
    "UPDATE trial SET choices = '{\"width' WHERE id = 2": ("trial", "id 2", "choices cannot be read"),
    "UPDATE trial SET cheap_values = '{\"flops\":1.0}' WHERE id = 2": ("trial", "id 2", "checksum"),
    "UPDATE trial SET seed = 77 WHERE id = 2": ("trial", "id 2", "checksum"),
    "UPDATE trial SET parameters = 3 WHERE id = 1": ("trial", "id 1", "checksum"),
    "UPDATE study SET seed = seed + 1": ("study", "id 1", "checksum"),
    "UPDATE study SET objectives = replace(objectives, 'minimize', 'maximize')": ("study", "id 1", "checksum"),
    "UPDATE space_version SET text = text || ' '": ("space_version", "study_id 1, number 0", "checksum"),
    "UPDATE architecture SET text = text || ' ' WHERE hash = '0000'": ("architecture", "hash '0000'", "checksum"),
    "UPDATE drawing SET packed = packed || '0'": ("drawing", "study_id 1, architecture_hash '0002'", "checksum"),
    "UPDATE trial SET last_unit = 2 WHERE id = 1": ("trial", "id 1", "no unit of its highest finished rung"),
    "UPDATE study SET sequence = 3": ("study", "id 1", "sequence"),
    "UPDATE trial SET number = 7 WHERE number = 2": ("trial", "id 3", "gap"),
    "UPDATE trial SET number = 1073741831 WHERE number = 2": ("trial", "id 3", "place among the finals"),
    "UPDATE trial SET purpose = 'final' WHERE number = 2": ("trial", "id 3", "the finals have a gap"),
    "UPDATE trial SET rung = 1 WHERE id = 1": ("trial", "id 1", "no unit of its highest"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_row_is_named(searched, change):
    table, row, found = CHANGES[change]
    with searched.database.engine.begin() as connection:
        connection.execute(text(change.replace(":", r"\:")))
    seen = damage(searched.database)
    assert any(each.table == table and each.row == row and found in each.found for each in seen), seen


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_broken_text_a_lost_row_and_a_broken_page_are_named(searched, url):
    file = url.removeprefix("sqlite:///")
    connection = sqlite3.connect(file)
    connection.execute("PRAGMA foreign_keys = OFF")
    connection.execute("UPDATE architecture SET text = CAST(x'ff00' AS TEXT) WHERE hash = '0000'")
    connection.execute("DELETE FROM unit WHERE id = 2")
    connection.commit()
    connection.close()
    seen = [str(each) for each in damage(searched.database)]
    assert any("table architecture, row hash b'0000': text cannot be read" in each for each in seen), seen
    assert any("refers to a row of unit that is missing" in each for each in seen)


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_an_upgrade_gives_older_rows_the_checksums_that_new_rows_get(searched, url):
    def checksums(store):
        with store.database.engine.connect() as connection:
            return connection.execute(
                text(
                    "SELECT 'u', id, checksum FROM unit UNION SELECT 'v', id, checksum FROM verdict "
                    "UNION SELECT 't', id, checksum FROM trial UNION SELECT 's', id, checksum FROM study "
                    "UNION SELECT 'v', number, checksum FROM space_version "
                    "UNION SELECT 'a', hash, checksum FROM architecture"
                )
            ).all()

    before = checksums(searched)
    connection = sqlite3.connect(url.removeprefix("sqlite:///"))
    for newer in ("TABLE drawing", "INDEX ix_trial_summary"):
        connection.execute(f"DROP {newer}")
    connection.execute("ALTER TABLE trial DROP COLUMN last_unit")
    connection.execute("ALTER TABLE unit DROP COLUMN progress_curve")
    connection.execute("ALTER TABLE measurement DROP COLUMN resources")
    for table in ("unit", "verdict", *(set(ROWS) - {"drawing"})):
        connection.execute(f"ALTER TABLE {table} DROP COLUMN checksum")
    connection.execute("UPDATE tessera_version SET version_num = '0006'")
    connection.commit()
    connection.close()
    with open_reader(url) as upgraded:  # a copy that is upgraded
        assert checksums(upgraded) == before and damage(upgraded.database) == []
    with open_store(url) as upgraded:
        assert checksums(upgraded) == before
        assert upgraded.database.at_once(version_of, writes=False) == HEAD
