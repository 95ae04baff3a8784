"""Opens a study database: to write, with its tables brought up to date, or only to read, without any change to it."""

from __future__ import annotations

import hashlib
import os
import shlex
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

from sqlalchemy import Connection, inspect

from nas.errors import DamageError, StoreError
from nas.store.database.engine import CACHE_KIB, RETRY_SECONDS, WAIT_SECONDS, Database, file_of, parse
from nas.store.database.secrets import option
from nas.store.migrate import HEAD, migrate, refuse_newer, version_of
from nas.store.reading import Reader
from nas.store.store import Store

SHOWN = 5  # names of tables in a message
LARGEST_KEPT = 64 * 2**20  # bytes of a migrated copy that are kept in memory
_last_migrated: dict[bytes, bytes] = {}  # the hash of a file before its migration -> the file afterwards
OPENED: list[str | Path] = []  # the database that this process opened last, for `damage_of_opened`


def open_store(
    where: str | Path | None = None,
    *,
    create: bool = True,
    wait: float = WAIT_SECONDS,
    retry: float = RETRY_SECONDS,
) -> Store:
    """Open a database by path or URL (None: $NAS_STORAGE, else ./nas.db), with its tables brought up to date.

    create: make the tables of a database that has none, and a SQLite file that is not there. A SQLite file with tables
    of another program is refused, before anything is written to it; in PostgreSQL both may share a database.
    wait: seconds for a lock on SQLite. retry: seconds for a PostgreSQL that went away. Raises StoreError that says what
    to do.
    """
    where = where or os.environ.get("NAS_STORAGE") or "nas.db"
    OPENED[:] = [where]
    url = parse(where)
    file = file_of(url)
    _check_file(file, may_be_new=create)
    if file is None or file.exists():
        with Reader(Database(url, wait=wait, reads_only=True)) as before:
            found, names = before.database.at_once(_contents, writes=False)
            if found is None and (not create or (file is not None and names)):
                raise _not_ours(before.database, names)
    database = Database(url, wait=wait, retry=retry)
    try:
        if database.at_once(version_of, writes=False) != HEAD:  # to read is all that a file at our version needs
            database.migrate(lambda connection: migrate(connection, database.place))
    except BaseException:
        database.close()
        raise
    return Store(database)


def open_reader(
    where: str | Path | None = None,
    *,
    wait: float = WAIT_SECONDS,
    retry: float = RETRY_SECONDS,
    cache_kib: int = CACHE_KIB,
) -> Reader:
    """Open a database that exists, as `open_store` does, to read it. Nothing in it changes.

    cache_kib: of each connection to SQLite; a process with many threads has many connections.

    A SQLite file of an earlier version is copied to a temporary file, and the copy is brought up to date.
    Raises StoreError if it holds no studies, or is in PostgreSQL and of an earlier version.
    """
    where = where or os.environ.get("NAS_STORAGE") or "nas.db"
    OPENED[:] = [where]
    url = parse(where)
    file = file_of(url)
    _check_file(file)
    database = Database(url, wait=wait, retry=retry, reads_only=True, cache_kib=cache_kib)
    try:
        version, names = database.at_once(_contents, writes=False)
        if version == HEAD:
            return Reader(database)
        if version is None:
            raise _not_ours(database, names)
        refuse_newer(version, database.place)
        if file is None:
            raise StoreError(
                f"{database.place} was made by an earlier Tessera. `nas search STUDY --storage "
                f"{shlex.quote(option(url))}` brings it up to date; earlier versions cannot use it afterwards."
            )
        return _current_copy(database, wait)
    except BaseException:
        database.close()
        raise


def damage_of_opened() -> StoreError | None:
    """An error that names the damaged rows of the database that was opened last; None if it is in order."""
    from nas.store.upkeep.damage import damage

    for where in OPENED:
        try:
            with open_reader(where) as reader:
                found = damage(reader.database)
                place, command = reader.database.place, reader.database.doctor
        except StoreError as error:
            return error
        if found:
            more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
            rows = "; ".join(str(each) for each in found[:SHOWN])
            return DamageError(
                f"{place} is damaged: {rows}{more}. `{command}` lists all. Keep a copy, then take your last "
                "backup; other studies and trials can still be read."
            )
    return None


def _check_file(file: Path | None, *, may_be_new: bool = False) -> None:
    """Raise StoreError if a SQLite file is missing or can be no database."""
    if file is None:
        return
    if file.is_dir():
        raise StoreError(f"{file} is a folder: name a file in it, such as {file / 'nas.db'}.")
    if not may_be_new and not file.exists():
        raise StoreError(
            f"There is no study database {file}: name another (--storage, in Python `storage`), or start a search."
        )
    if file.is_file() and file.stat().st_size == 1:  # SQLite takes it as empty, and would write over it
        raise StoreError(f"The study database {file} is not a database. Name another file, or move this one away.")


def _contents(connection: Connection) -> tuple[str | None, list[str]]:
    """The version of our tables, or None and the names of others: of one moment, as another process may make ours."""
    version = version_of(connection)
    return version, [] if version is not None else sorted(inspect(connection).get_table_names())


def _not_ours(database: Database, names: list[str]) -> StoreError:
    if not names:
        return StoreError(f"{database.place} is empty. `nas search FILE` starts a study.")
    more = ", ..." if len(names) > SHOWN else ""
    return StoreError(
        f"{database.place} belongs to another program: it has tables named {', '.join(names[:SHOWN])}{more}, but no "
        "studies of Tessera. Name another file or database."
    )


def _current_copy(database: Database, wait: float) -> Reader:
    """A reader of a temporary copy of a SQLite database, brought up to date; it closes `database`."""
    folder = tempfile.TemporaryDirectory(prefix="nas-read-")
    path = Path(folder.name) / "study.db"
    try:
        with closing(sqlite3.connect(path)) as copy:
            source = database.engine.raw_connection()
            source.driver_connection.backup(copy)  # type: ignore[union-attr]
            source.close()
        database.close()
        current = Database(parse(path), wait=wait)
        current.url, current.place = database.url, database.place
        _bring_up_to_date(current, path)
    except BaseException:
        folder.cleanup()
        raise
    return Reader(current, folder)


def _bring_up_to_date(database: Database, path: Path) -> None:
    """Migrate the SQLite file at `path`. A command opens its study several times, so the last result is used again."""
    before = hashlib.sha256(path.read_bytes()).digest()
    after = _last_migrated.get(before)
    if after is not None:
        path.write_bytes(after)
        return
    database.migrate(lambda connection: migrate(connection, database.place))
    _last_migrated.clear()
    if path.stat().st_size <= LARGEST_KEPT:
        _last_migrated[before] = path.read_bytes()
