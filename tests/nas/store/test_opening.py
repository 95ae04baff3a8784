"""What a user reads when the database cannot be used, and that nothing is changed then."""

import os
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from nas.errors import StoreError
from nas.store import open_reader, open_store


@pytest.fixture
def file(template, tmp_path):
    path = tmp_path / "nas.db"
    path.write_bytes(template.read_bytes())
    return path


def new_study(store, name="quick"):
    return store.create_study(name, {}, "kind: decoder", 0, [{"name": "bits", "direction": "minimize"}])


def test_a_postgresql_database_may_hold_the_tables_of_other_programs_too(server):
    import psycopg

    empty = server.new_database("template0")
    with psycopg.connect(empty) as connection:
        connection.execute("CREATE TABLE alembic_version (version_num TEXT)")
    with open_store(empty) as store:
        assert store.studies() == []


def test_a_locked_file_says_so_after_the_wait(file):
    holder = sqlite3.connect(file, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")

    with open_store(file, wait=0.05) as store:
        assert store.studies() == []  # a reader does not wait
        with pytest.raises(StoreError, match=r"locked by another process, for more than 0.05 s.*fuser"):
            new_study(store)
        holder.close()
        new_study(store)


def test_a_full_disk_says_so_and_keeps_what_was_recorded(file):
    with open_store(file) as store:
        study = new_study(store)

        def fill():
            for _ in range(1000):
                store.add_space_version(study.id, os.urandom(20_000).hex())

        with store.database.engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA max_page_count = 100")
        with pytest.raises(StoreError, match=r"the disk is full. Free some space.*everything recorded so far is kept"):
            fill()
        written = store.space_versions(study.id)
    with open_store(file) as store:
        assert store.space_versions(study.id) == written
        new_study(store, "room again")


def test_a_file_that_is_no_database_says_so(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("kind: decoder\n" * 1000)

    with pytest.raises(StoreError, match=r"is not a database. Name another file"):
        open_store(path)
    assert path.read_text() == "kind: decoder\n" * 1000


@pytest.mark.parametrize("open_it", [open_store, open_reader])
def test_a_file_of_one_byte_is_no_database_and_stays(open_it, tmp_path):
    (tmp_path / "one").write_bytes(b"x")
    with pytest.raises(StoreError, match=r"one is not a database. Name another file"):
        open_it(tmp_path / "one")
    assert (tmp_path / "one").read_bytes() == b"x"


def test_a_damaged_file_says_so(file):
    with open_store(file) as store:
        new_study(store)
    content = bytearray(file.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    file.write_bytes(content)

    with pytest.raises(StoreError, match=r"is damaged. Keep a copy, then try `sqlite3 FILE .recover"):
        open_store(file)


def test_a_folder_that_is_not_there_says_so(tmp_path):
    with pytest.raises(StoreError, match=r"cannot be opened. Its folder must exist"):
        open_store(tmp_path / "nowhere" / "nas.db")


def test_the_environment_names_the_database(file, monkeypatch, tmp_path):
    with open_store(file) as store:
        new_study(store)
    monkeypatch.chdir(tmp_path)
    with open_store() as store:  # nas.db in the folder of the user
        assert len(store.studies()) == 1
    monkeypatch.setenv("NAS_STORAGE", str(tmp_path / "other.db"))
    with open_store() as store:
        assert store.studies() == []


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("postgresql://me@127.0.0.1:1/name", "does not answer. Check the host and port"),
        ("postgresql://me@no-such-host.invalid/name", "does not answer. Check the host and port"),
        (".", "is a folder: name a file in it"),
        ("mysql://host/name", "in SQLite or PostgreSQL, not in 'mysql'"),
        ("sqlite://", "in memory dies with its process"),
        ("sqlite+aiosqlite:///x.db", r"no driver 'sqlite\+aiosqlite' for a study database: write sqlite:///PATH"),
        ("~no-such-user/x.db", "no study database ~no-such-user/x.db: Could not determine home directory"),
        ("postgresql://host:port/name", "is not the URL of a database"),
        ("sqlite:///x.db?mode=ro", "takes no options, but got mode: write sqlite:///PATH"),
        ("sqlite:///file:x.db?mode=ro", "takes no options, but got mode"),
        ("sqlite:///file://host/x.db?uri=true", "in SQLite's own URL one / stands before the path, as in file:/PATH"),
    ],
)
def test_what_cannot_be_a_database_is_refused(where, words):
    for opens in (open_store, partial(open_store, create=False)):
        with pytest.raises(StoreError, match=words):
            opens(where)


def test_an_unknown_database_or_user_says_so(server):
    with pytest.raises(StoreError, match=r"has no such database. Create it with `createdb`"):
        open_store(server.url("nowhere"))
    with pytest.raises(StoreError, match="refuses this user"):
        open_store(server.url().replace("postgres:@", "nobody:@"))


def test_a_wrong_password_says_so(server):
    with server.asking_for_passwords(), pytest.raises(StoreError, match="refused the password of the URL"):
        open_store(server.url().replace("postgres:@", "guest:wrong@"))


def test_a_user_without_rights_says_so(server, postgresql):
    server.execute("CREATE ROLE reader LOGIN")
    with pytest.raises(StoreError, match=r"does not allow this user to do that. Grant it CREATE"):
        open_store(postgresql.replace("postgres:@", "reader:@"))


def test_a_new_file_that_another_is_busy_with_is_waited_for(tmp_path):
    other = sqlite3.connect(tmp_path / "new.db", isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")  # as a process that makes the same file does
    with ThreadPoolExecutor(1) as pool:
        opened = pool.submit(open_store, tmp_path / "new.db")
        time.sleep(0.3)
        other.execute("COMMIT")
        with opened.result() as store:
            assert store.studies() == []
    other.close()
