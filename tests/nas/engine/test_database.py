"""The disk of the study database is full in the middle of a search: the search waits, and nothing is lost."""

import sqlite3

import pytest
from sqlalchemy import Engine, event

from nas.errors import StoreError
from nas.store import open_store
from nas.store.database import engine
from nas.upkeep import disk

HALVING = "{halving: {rungs: [2, 4, 8], factor: 2}}"
STRATEGY = "{nsga2: {start: 4, population: 4}}"


@pytest.fixture
def small_disk(monkeypatch):
    """`small_disk(writes, refused)`: after this many transactions, the next `refused` ones find no space.

    SQLite itself refuses those that need more pages than the file has. Returns what is left of both numbers.
    """
    left = {"writes": 0, "refused": 0}
    monkeypatch.setattr(engine, "SPACE_PAUSE", 0.0)
    monkeypatch.setattr(disk, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(disk, "RESERVE", 0)

    def limit(connection):
        raw = connection.connection.dbapi_connection
        if not isinstance(raw, sqlite3.Connection) or not connection.get_execution_options().get("writes"):
            return
        left["writes"] -= 1
        full = left["writes"] < 0 and left["refused"] > 0
        left["refused"] -= full
        raw.execute(f"PRAGMA max_page_count = {1 if full else 2**30}").fetchall()  # 1: the present size

    event.listen(Engine, "begin", limit, insert=True)

    def set_up(writes, refused):
        left.update(writes=writes, refused=refused)
        return left

    yield set_up
    event.remove(Engine, "begin", limit)


def test_a_search_waits_for_space_and_loses_nothing(describe, search, record, small_disk, tmp_path, monkeypatch):
    with (tmp_path / "whole").mkdir() or search(describe(tmp_path / "whole")) as result:
        whole = record(result)
    told = []
    monkeypatch.setattr(disk.Disks, "failed", lambda disks, why, seconds: told.append(why))
    left = small_disk(20, 60)
    with search(describe()) as result:
        assert record(result) == whole
    assert left["refused"] == 0
    assert set(told) == {"the disk of the study database is full."}


def test_the_next_search_continues_after_the_wait_was_ended(
    describe, search, record, small_disk, tmp_path, monkeypatch
):
    with (tmp_path / "whole").mkdir() or search(describe(tmp_path / "whole")) as result:
        whole = record(result)
    asked = []

    def stop(self):
        asked.append(1)
        return len(asked) < 3

    monkeypatch.setattr("nas.engine.loop.Search._no_space", stop)
    small_disk(14, 10**6)  # a trial cannot be added; a result would keep its lease, as this process lives
    with pytest.raises(StoreError, match="cannot grow: the disk is full"):
        search(describe())
    small_disk(10**6, 0)
    with search(describe()) as result:
        assert record(result) == whole


def test_a_store_without_a_search_says_at_once_that_the_disk_is_full(small_disk, tmp_path):
    with open_store(f"sqlite:///{tmp_path}/a.db") as store:
        small_disk(0, 10**6)
        with pytest.raises(StoreError, match="cannot grow: the disk is full"):
            store.create_study("s", {}, "x" * 100_000, 0, [{"name": "loss", "direction": "minimize"}])
