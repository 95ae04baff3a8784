"""The tables: a new database is what the models say, Alembic starts from it, and other databases are refused."""

import multiprocessing
import sqlite3
import warnings
from functools import partial

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import CheckConstraint, inspect

from nas.errors import StoreError
from nas.store import open_reader, open_store
from nas.store.database.engine import Database
from nas.store.models import metadata
from nas.store.schema import SCRIPTS, VERSION, VERSION_TABLE


def execute(url, statement):
    if url.startswith("sqlite"):
        with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
            connection.execute(statement)
        connection.close()
    else:
        import psycopg

        with psycopg.connect(url) as connection:
            connection.execute(statement)


@pytest.fixture
def config():
    config = Config()
    config.set_main_option("script_location", str(SCRIPTS))
    return config


def test_a_new_database_has_what_the_models_say(store):
    options = {"target_metadata": metadata, "version_table": VERSION_TABLE}
    with store.database.engine.connect() as connection:
        differences = compare_metadata(MigrationContext.configure(connection, opts=options), metadata)
        seen = inspect(connection)
        made = {(table, check["name"]) for table in metadata.tables for check in seen.get_check_constraints(table)}
        (index,) = [each for each in seen.get_indexes("unit") if each["name"] == "ix_unit_open"]
        (where,) = (str(each) for name, each in index["dialect_options"].items() if name.endswith("where"))
    said = {
        (table.name, str(check.name))
        for table in metadata.tables.values()
        for check in table.constraints
        if isinstance(check, CheckConstraint)
    }
    assert differences == [] and made == said and "queued" in where


def test_alembic_finds_the_version_that_opening_looks_for(store, config):
    assert ScriptDirectory.from_config(config).get_current_head() == VERSION
    with store.database.engine.begin() as connection, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about settings of Alembic that a migration does not need
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
        assert MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE}).get_current_revision() == (
            VERSION
        )


@pytest.mark.parametrize("opens", [open_store, open_reader, partial(open_store, create=False)])
def test_a_database_of_another_version_is_refused_and_stays(url, opens):
    execute(url, f"UPDATE {VERSION_TABLE} SET version_num = '9999'")
    for _ in range(2):
        with pytest.raises(StoreError, match="another version of Tessera: its tables are at version 9999, and this"):
            opens(url)


def open_and_count(url, barrier):
    barrier.wait()
    with open_store(url) as store:
        assert store.studies() == []


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_two_processes_may_make_the_same_database_at_once(kind, tmp_path, request):
    server = request.getfixturevalue("server") if kind == "postgresql" else None
    url = server.new_database(template="template0") if server else str(tmp_path / "nas.db")
    context = multiprocessing.get_context("fork")  # which saves the imports
    barrier = context.Barrier(2)
    processes = [context.Process(target=open_and_count, args=(url, barrier)) for _ in range(2)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of threads
        for process in processes:
            process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]


def test_a_file_that_another_process_fills_while_it_is_opened_is_ours(tmp_path, monkeypatch):
    (tmp_path / "nas.db").touch()
    at_once = Database.at_once

    def and_then(self, *given, **options):
        monkeypatch.setattr(Database, "at_once", at_once)
        found = at_once(self, *given, **options)
        open_store(tmp_path / "nas.db").close()  # the other process
        return found

    monkeypatch.setattr(Database, "at_once", and_then)
    with open_store(tmp_path / "nas.db") as store:
        assert store.studies() == []


def test_faults_of_the_file_are_named(store, study, add, url):
    add(store, study, 0)
    assert store.faults() == []
    if store.database.dialect == "sqlite":
        with store.database.engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA foreign_keys = OFF")
            connection.exec_driver_sql("DELETE FROM architecture")
        assert "table trial, row 1: its row of architecture is missing" in store.faults()
