"""What only reads changes nothing: no table, no byte of the file, no file next to it."""

import os
import sqlite3
from functools import partial

import pytest

from nas.errors import StoreError
from nas.store import Store, open_reader, open_store


@pytest.fixture
def file(template, tmp_path):
    path = tmp_path / "nas.db"
    path.write_bytes(template.read_bytes())
    with open_store(path) as store:
        store.create_study("quick", {}, "kind: decoder", 0, [{"name": "bits", "direction": "minimize"}])
    return path


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_reader_leaves_every_byte_as_it_is(file):
    before = contents(file.parent)
    with open_reader(file) as reader:
        assert [study.name for study in reader.studies()] == ["quick"]
        assert not isinstance(reader, Store)
    assert contents(file.parent) == before


def test_the_connection_of_a_reader_refuses_to_write(file):
    with open_reader(file) as reader, pytest.raises(StoreError, match="is read-only"):
        Store(reader.database).create_study("second", {}, "kind: decoder", 0, [{"name": "x", "direction": "minimize"}])


def test_the_connection_of_a_reader_refuses_to_write_to_postgresql(postgresql):
    with open_store(postgresql) as store:
        store.create_study("quick", {}, "kind: decoder", 0, [{"name": "bits", "direction": "minimize"}])
    with open_reader(postgresql) as reader:
        assert reader.study("quick").name == "quick"
        with pytest.raises(StoreError, match="is read-only"):
            Store(reader.database).update_study(1, ending={})
        for _ in range(2):  # a setting of the connection, not of its first transaction
            found = reader.database.read(lambda connection: connection.exec_driver_sql("SHOW jit").scalar())
            assert found == "off"


def test_a_reader_sees_what_a_writer_adds(file):
    with open_reader(file) as reader, open_store(file) as store:
        store.create_study("second", {}, "kind: decoder", 0, [{"name": "bits", "direction": "minimize"}])
        assert [study.name for study in reader.studies()] == ["quick", "second"]


@pytest.mark.parametrize(
    "opens", [open_reader, open_store, partial(open_store, create=False)], ids=["reader", "search", "resume"]
)
def test_a_database_of_another_program_is_refused_before_anything_is_written(tmp_path, opens):
    with sqlite3.connect(tmp_path / "bookmarks.db") as connection:
        connection.execute("CREATE TABLE bookmark (url TEXT)")
    connection.close()
    before = contents(tmp_path)
    with pytest.raises(StoreError, match="belongs to another program: it has tables named bookmark, but no studies"):
        opens(tmp_path / "bookmarks.db")
    assert contents(tmp_path) == before


def test_an_empty_file_holds_no_study(tmp_path):
    (tmp_path / "empty.db").touch()
    with pytest.raises(StoreError, match=r"empty.db is empty. `nas search FILE` starts a study"):
        open_reader(tmp_path / "empty.db")
    assert contents(tmp_path) == {"empty.db": b""}


def test_a_folder_without_write_permission_is_read(file, monkeypatch):
    """Also as root, who may write everywhere: then the question for the permission is answered with no."""
    allowed = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK and allowed(path, mode))
    file.parent.chmod(0o500)
    try:
        with open_reader(file) as reader:
            assert reader.study("quick").name == "quick"
            assert set(contents(file.parent)) == {"nas.db"}
    finally:
        file.parent.chmod(0o700)


def test_a_name_with_signs_of_a_url_is_a_file(file):
    path = file.rename(file.with_name("a ?b=1#c%20.db"))
    with open_reader(path) as reader:
        assert reader.study("quick").name == "quick"
