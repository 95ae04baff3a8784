"""A copy of a study database is complete, never replaces a file, and says what is wrong."""

import shutil
import sqlite3
from contextlib import closing

import pytest

from nas.backup import backup
from nas.errors import StoreError, UsageError
from nas.store import open_reader, open_store


def test_a_copy_of_a_database_in_use_is_one_complete_file(tmp_path):
    with open_store(tmp_path / "a.db") as store:
        store.create_study("mine", {}, "space", 0, [{"name": "loss", "direction": "minimize"}])
        size = backup(tmp_path / "a.db", tmp_path / "copy.db")
    assert size == (tmp_path / "copy.db").stat().st_size
    assert sorted(path.name for path in tmp_path.glob("copy*")) == ["copy.db"]
    with open_reader(tmp_path / "copy.db") as copy:
        assert [study.name for study in copy.studies()] == ["mine"]
    with pytest.raises(UsageError, match="exists already"):
        backup(tmp_path / "a.db", tmp_path / "copy.db")


def test_a_database_that_is_missing_damaged_or_not_ours_leaves_no_copy(tmp_path):
    (tmp_path / "broken.db").write_bytes(b"SQLite format 3\0" + b"x" * 5000)
    with closing(sqlite3.connect(tmp_path / "other.db")) as other:
        other.execute("CREATE TABLE songs (name TEXT)")
    messages = {
        "gone.db": "no study database",
        "broken.db": "could not be copied.*nas doctor",
        "other.db": "other.db holds no studies",
    }
    for name, message in messages.items():
        with pytest.raises(StoreError, match=message):
            backup(tmp_path / name, tmp_path / "copy.db")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broken.db", "other.db"]


def test_postgresql_without_pg_dump_says_what_to_run(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(StoreError, match=r"pg_dump --format=custom --file=FILE postgresql://me:\*\*\*@host/nas"):
        backup("postgresql://me:secret@host/nas", tmp_path / "copy.dump")
