"""Upgrades a database to the tables of this version when it is opened."""

from __future__ import annotations

import warnings
from functools import cache
from pathlib import Path

from sqlalchemy import (
    Column,
    Connection,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    create_mock_engine,
    inspect,
    text,
)
from sqlalchemy.engine.mock import MockConnection
from sqlalchemy.schema import ExecutableDDLElement

from nas.errors import StoreError
from nas.store.device_models import metadata  # with the tables of `models`

VERSION_TABLE = "tessera_version"
HEAD = "0013"  # the newest script in migrations/versions; a copy, so that opening a database does not import Alembic
SCRIPTS = Path(__file__).parent / "migrations"
# The table in which Alembic keeps the version, as Alembic makes it.
_VERSION = Table(
    VERSION_TABLE,
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name=f"{VERSION_TABLE}_pkc"),
)
_LOCK = 7_355_608_017  # any number that no other program uses for an advisory lock of PostgreSQL


def version_of(connection: Connection) -> str | None:
    """The version of the tables, None in a database without them."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    return connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()


def migrate(connection: Connection, place: str) -> None:
    """Make or upgrade the tables in the transaction of `connection`.

    A new SQLite file gets the newest tables at once, without Alembic, which is slow to import and to run. A new
    PostgreSQL database gets them from the migrations; these databases are few.

    Raises StoreError, and changes nothing, for a database of a newer version or of another program.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
    found = version_of(connection)
    if found == HEAD:
        return
    if found is None:
        _refuse_foreign(connection, place)
    if found is None and connection.dialect.name == "sqlite":
        _make(connection)
    else:
        upgrade(connection, found, place)
        _check_references(connection, place)


def _make(connection: Connection) -> None:
    """Make all tables in an empty SQLite file. A test compares them with those that the migrations make."""
    for statement in _statements():
        connection.exec_driver_sql(statement)
    connection.execute(_VERSION.insert().values(version_num=HEAD))


@cache
def _statements() -> tuple[str, ...]:
    """The SQL that makes all tables in SQLite; to compile it takes longer than to run it."""
    found: list[str] = []

    def note(element: ExecutableDDLElement, *_: object, **__: object) -> None:
        found.append(str(element.compile(engine)))

    engine: MockConnection = create_mock_engine("sqlite://", note)
    for tables in (metadata, _VERSION.metadata):
        tables.create_all(engine, checkfirst=False)
    return tuple(found)


def upgrade(connection: Connection, found: str | None, place: str) -> None:
    """Run the migrations after version `found`, or all of them if it is None.

    Raises StoreError if `found` is no version of this program.
    """
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(SCRIPTS))
    if found is not None:
        refuse_newer(found, place)
    config.attributes["connection"] = connection
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about Alembic's configuration, which users cannot change
        command.upgrade(config, "head")


def refuse_newer(found: str, place: str) -> None:
    """Raises StoreError if the version `found` of the tables is unknown to this release."""
    known = {path.name.partition("_")[0] for path in (SCRIPTS / "versions").glob("[0-9]*.py")}
    if found not in known:
        raise StoreError(
            f"{place} was made by a newer Tessera (its tables are at version {found}, this one knows {max(known)}). "
            "Upgrade with `pip install -U tessera-nas`, or name another database."
        )


def _check_references(connection: Connection, place: str) -> None:
    """Raise StoreError, which undoes the migration, if a row refers to one that does not exist."""
    if connection.dialect.name != "sqlite":
        return  # PostgreSQL checked every statement
    broken = connection.execute(text("PRAGMA foreign_key_check")).all()
    if broken:
        tables = ", ".join(sorted({row[0] for row in broken}))
        raise StoreError(f"{place} is damaged: {len(broken)} rows of {tables} refer to rows that are missing.")


def _refuse_foreign(connection: Connection, place: str) -> None:
    ours = sorted(set(inspect(connection).get_table_names()) & set(metadata.tables))
    if ours:
        raise StoreError(
            f"{place} belongs to another program: it has tables named {', '.join(ours)}, but not Tessera's "
            "version. Name another file or database."
        )
