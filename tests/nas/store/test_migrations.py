"""The tables: what the migrations make is what the models say, and a file of the first version opens for ever."""

import multiprocessing
import shutil
import warnings
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import CheckConstraint, func, inspect, select, text

from nas.store import TrialState, UnitState, open_store
from nas.store.database.engine import Database, parse
from nas.store.device_models import metadata
from nas.store.migrate import HEAD, SCRIPTS, VERSION_TABLE, upgrade, version_of

FIRST = Path(__file__).parent / "study-v1.db"
OWNER = "laptop:2:later"


@pytest.fixture(params=["sqlite", "postgresql"])
def migrated(request, tmp_path):
    """A database on which all migrations ran, from the first one on."""
    sqlite = request.param == "sqlite"
    url = tmp_path / "migrated.db" if sqlite else request.getfixturevalue("server").new_database(template="template0")
    database = Database(parse(url))
    database.migrate(lambda connection: upgrade(connection, None, database.place))
    yield database
    database.close()


def test_the_migrations_make_what_the_models_say(migrated):
    options = {"target_metadata": metadata, "version_table": VERSION_TABLE}
    with migrated.engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection, opts=options), metadata) == []


def test_the_migrations_make_every_check_of_the_models(migrated):
    """Alembic compares no CHECK constraints, so this does."""
    with migrated.engine.connect() as connection:
        made = {
            (table, check["name"])
            for table in metadata.tables
            for check in inspect(connection).get_check_constraints(table)
        }
    said = {
        (table.name, str(check.name))
        for table in metadata.tables.values()
        for check in table.constraints
        if isinstance(check, CheckConstraint)
    }
    assert made == said


def tables_of(database):
    """Everything that SQLite says of its tables. Columns and constraints go by name, because their order may differ."""
    with database.engine.connect() as connection:
        seen, version = inspect(connection), version_of(connection)
        tables = {
            name: {
                "columns": {each["name"]: {**each, "type": str(each["type"])} for each in seen.get_columns(name)},
                "key": seen.get_pk_constraint(name),
                "references": {each["name"]: each for each in seen.get_foreign_keys(name)},
                "unique": {each["name"]: each for each in seen.get_unique_constraints(name)},
                "checks": {each["name"]: each for each in seen.get_check_constraints(name)},
                "options": seen.get_table_options(name),
            }
            for name in seen.get_table_names()
        }
        indexes = text("SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL")
        return version, tables, dict(connection.execute(indexes).all())


@pytest.mark.parametrize("migrated", ["sqlite"], indirect=True)
def test_a_new_file_is_as_if_all_migrations_had_run(migrated, tmp_path):
    with open_store(tmp_path / "new.db") as new:
        found = tables_of(new.database)
    assert found == tables_of(migrated)
    assert found[0] == HEAD and found[1].keys() == {*metadata.tables, VERSION_TABLE} and "ix_unit_open" in found[2]


def test_the_newest_migration_is_the_one_that_opening_looks_for():
    config = Config()
    config.set_main_option("script_location", str(SCRIPTS))
    assert ScriptDirectory.from_config(config).get_current_head() == HEAD


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


@pytest.fixture
def first(tmp_path):
    with open_store(shutil.copy(FIRST, tmp_path / "study.db")) as store:
        yield store


def test_a_file_of_the_first_version_is_read(first):
    study = first.study("first")
    assert [each.name for each in first.studies()] == ["first", "empty"]
    assert (study.config, study.seed, study.data_hash, study.sequence) == ({"budget": {"trials": 6}}, 7, "5eed", 4)
    assert [trial.state for trial in first.trials(study.id)] == [
        TrialState.STOPPED,
        TrialState.STOPPED,
        TrialState.COMPLETE,
        TrialState.RUNNING,
        TrialState.FAILED,
        TrialState.WAITING,
    ]
    assert [result.number for result in first.results_since(study.id)] == [4, 0, 1, 2]
    assert first.best(study.id)[0].values == {"bits_per_byte": 0.5, "accuracy": 0.5, "parameters": 1002.0}
    assert first.curve(study.id, 1) == [(50, 4.0), (100, 3.0)]
    assert first.units(study.id, 0)[0].checkpoint_sha256 == "c0ffee"
    assert len(first.space_versions(study.id)) == 2
    with first.database.engine.connect() as connection:
        tables = {table.name: table for table in metadata.tables.values()}
        rows = {name: connection.execute(select(func.count()).select_from(tables[name])).scalar() for name in tables}
    assert (rows["device"], rows["measurement"]) == (1, 2)


def test_a_search_in_a_file_of_the_first_version_goes_on(first):
    study = first.study("first")
    units = first.lease(study.id, OWNER, 5, dead_owners=["laptop:1:first"])
    assert [(unit.number, unit.attempt) for unit in units] == [(3, 2), (5, 1)]

    sequences = [first.finish(unit.id, OWNER, unit.attempt, {"bits_per_byte": 0.1}, last=True) for unit in units]
    assert sequences == [5, 6]
    assert first.open_units(study.id)[UnitState.QUEUED] == 0
