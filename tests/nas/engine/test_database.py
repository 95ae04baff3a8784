"""The study database in the middle of a search: its disk is full, or its rows are damaged.

With a full disk the search waits, and nothing is lost. With damage it names the row; it neither hangs nor says nothing.
"""

import shutil
import sqlite3

import pytest
from sqlalchemy import Engine, event

from nas.engine import launch
from nas.engine.loop import Interrupted
from nas.errors import DamageError, StoreError
from nas.runners.inline import InlineRunner
from nas.store import open_store
from nas.store.database import engine
from nas.upkeep import disk

HALVING = "{halving: {rungs: [2, 4, 8], factor: 2}}"
STRATEGY = "{nsga2: {start: 4, population: 4}}"
DAMAGE = {
    "trial, row id .*: choices cannot be read": "UPDATE trial SET choices = substr(choices, 1, 20)",
    "trial, row id .*: choices cannot be read: this JSON is nested": f"UPDATE trial SET choices = '{'[' * 100_000}'",
    "unit, row id 3: seconds is no number": "UPDATE unit SET seconds = 'abc' WHERE id = 3",
    "unit, row id 3: its values do not agree": "DELETE FROM objective_value WHERE unit_id = 3",
    "trial, number 2: no arm 'other'": "UPDATE trial SET arm = 'other' WHERE number = 2",
    "trial, number 2: no arm 'main' has trials of the kind 'x'": "UPDATE trial SET purpose = 'x' WHERE number = 2",
    "trial, number 3: rows before it": "UPDATE trial SET number = 102 WHERE number = 2",
    "unit, sequence 4: rows before it": "UPDATE unit SET sequence = 999 WHERE sequence = 3",
    "trial, number 2: it knew 999 results": "UPDATE trial SET known_results = 999 WHERE number = 2",
    "space_version, row study_id 1": "UPDATE space_version SET text = substr(text, 1, 60)",
    "study, row id 1": "UPDATE study SET seed = 7",
    "architecture, hash": "UPDATE architecture SET text = (SELECT text FROM architecture ORDER BY hash LIMIT 1)",
}

# Each row can be read, and proposals would change.
SILENT = {
    "unit, row id 3": "UPDATE objective_value SET value = value + 1 WHERE unit_id = 3",
    "trial, row id 3": "UPDATE trial SET choices = (SELECT choices FROM trial WHERE id = 4) WHERE id = 3",
}


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


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    return tmp_path_factory.mktemp("kept") / "tried.db"


@pytest.fixture
def config(describe, table, stopped, kept):
    """`config(folder)`: a search that was stopped while its eleventh unit ran."""
    asked = {"strategy": STRATEGY, "scheduler": HALVING, "budget": "{trials: 16}"}
    if not kept.exists():
        with pytest.raises(Interrupted):
            launch.search(describe(kept.parent, **asked), quiet=True, runner=stopped(table, 10))
    return lambda folder: describe(folder, **asked)


@pytest.fixture
def refused(config, table, kept, tmp_path):
    """`refused(statement, row)`: after this damage the search does not go on, and names the row."""

    def call(statement, row):
        asked = config(tmp_path)
        connection = sqlite3.connect(shutil.copy(kept, tmp_path))
        connection.execute("PRAGMA ignore_check_constraints = ON")
        connection.execute(statement)
        connection.commit()
        connection.close()
        with pytest.raises(DamageError, match=f"is damaged: (.*; )?table {row}"):
            launch.search(asked, quiet=True, runner=InlineRunner(table))

    return call


@pytest.mark.parametrize("row", DAMAGE)
def test_the_damaged_row_of_a_large_study_is_named(refused, monkeypatch, row):
    monkeypatch.setattr("nas.store.upkeep.damage.FEW", 0)  # trials whose checksums are compared
    refused(DAMAGE[row], row)


@pytest.mark.parametrize("row", SILENT)
def test_in_a_small_study_other_valid_values_are_found_too(refused, row):
    refused(SILENT[row], f"{row}: its values do not agree with its checksum")


def test_an_error_of_a_search_whose_database_is_in_order_stays_as_it_is(config, table, kept, tmp_path):
    class Broken(InlineRunner):
        def submit(self, work):
            raise ZeroDivisionError

    asked = config(tmp_path)
    shutil.copy(kept, tmp_path)
    with pytest.raises(ZeroDivisionError):
        launch.search(asked, quiet=True, runner=Broken(table))
