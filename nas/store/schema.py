"""Makes the tables of a new database, and refuses a database of another version or of another program."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Column, Connection, PrimaryKeyConstraint, String, Table, inspect, select, text

from nas.errors import StoreError
from nas.store.models import OPEN, index_of_open_units, metadata

VERSION = "0001"  # the newest script in migrations/versions; a copy, so that opening a database does not import Alembic
SCRIPTS = Path(__file__).parent / "migrations"
VERSION_TABLE = "tessera_version"
# The table in which Alembic keeps the version, as Alembic makes it.
_version = Table(
    VERSION_TABLE,
    metadata,
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name=f"{VERSION_TABLE}_pkc"),
)
_LOCK = 7_355_608_017  # any number that no other program uses for an advisory lock of PostgreSQL
SHOWN = 5  # names of tables in a message


def is_made(connection: Connection, place: str) -> bool:
    """Whether the database has our tables; False if it is empty.

    Raises StoreError for tables of another version. So does a database of another program: one with tables of our
    names, and a SQLite file with any tables.
    """
    names = set(inspect(connection).get_table_names())
    if VERSION_TABLE in names:
        found = connection.execute(select(_version.c.version_num)).scalar()
        if found != VERSION:
            raise StoreError(
                f"{place} was made by another version of Tessera: its tables are at version {found}, and this one "
                f"reads version {VERSION}. Use the Tessera that made it, or name another database."
            )
        return True
    foreign = sorted(names if connection.dialect.name == "sqlite" else names & set(metadata.tables))
    if foreign:
        more = ", ..." if len(foreign) > SHOWN else ""
        raise StoreError(
            f"{place} belongs to another program: it has tables named {', '.join(foreign[:SHOWN])}{more}, but no "
            "studies of Tessera. Name another file or database."
        )
    return False


def faults(connection: Connection) -> list[str]:
    """What SQLite finds wrong with its own file, and rows that refer to missing ones; nothing if it is in order.

    PostgreSQL checks its constraints itself.
    """
    if connection.dialect.name != "sqlite":
        return []
    found = [line for (line,) in connection.exec_driver_sql("PRAGMA integrity_check") if line != "ok"]
    broken = connection.exec_driver_sql("PRAGMA foreign_key_check")
    return found + [f"table {table}, row {row}: its row of {other} is missing" for table, row, other, _ in broken]


def make(connection: Connection, place: str) -> None:
    """Make the tables, unless another process has made them meanwhile. Raises StoreError as `is_made`."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
        # The index is partial here too. To say so in `models` would import this dialect, and asyncio, in every command.
        index_of_open_units.dialect_options["postgresql"]["where"] = text(OPEN)
    if is_made(connection, place):
        return
    metadata.create_all(connection, checkfirst=False)
    connection.execute(_version.insert().values(version_num=VERSION))
