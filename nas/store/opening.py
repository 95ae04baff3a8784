"""Opens a study database: to write, with its tables made if it is new, or only to read, without any change to it."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

from nas.errors import StoreError
from nas.store import schema
from nas.store.database.engine import CACHE_KIB, RETRY_SECONDS, WAIT_SECONDS, Database, file_of, parse
from nas.store.reading import Reader
from nas.store.store import Store


def open_store(
    where: str | Path | None = None,
    *,
    create: bool = True,
    wait: float = WAIT_SECONDS,
    retry: float = RETRY_SECONDS,
) -> Store:
    """Open a database by path or URL (None: $NAS_STORAGE, else ./nas.db).

    create: make the tables of a database that has none, and a SQLite file that is not there. A SQLite file with tables
    of another program is refused, before anything is written to it; in PostgreSQL both may share a database.
    wait: seconds for a lock on SQLite. retry: seconds for a PostgreSQL that went away. Raises StoreError that says what
    to do.
    """
    url = parse(_named(where))
    file = file_of(url)
    _check_file(file, may_be_new=create)
    is_made = False
    if file is None or file.exists():
        with Reader(Database(url, wait=wait, reads_only=True)) as before:
            is_made = _is_made(before.database)
            if not is_made and not create:
                raise _empty(before.database)
    database = Database(url, wait=wait, retry=retry)
    try:
        if not is_made:
            database.at_once(partial(schema.make, place=database.place), writes=True)
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

    cache_kib: of each connection to SQLite; a process with many threads has many connections. Raises StoreError if it
    holds no studies.
    """
    url = parse(_named(where))
    _check_file(file_of(url))
    database = Database(url, wait=wait, retry=retry, reads_only=True, cache_kib=cache_kib)
    try:
        if not _is_made(database):
            raise _empty(database)
    except BaseException:
        database.close()
        raise
    return Reader(database)


def _named(where: str | Path | None) -> str | Path:
    return where or os.environ.get("NAS_STORAGE") or "nas.db"


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


def _is_made(database: Database) -> bool:
    return database.at_once(partial(schema.is_made, place=database.place), writes=False)


def _empty(database: Database) -> StoreError:
    return StoreError(f"{database.place} is empty. `nas search FILE` starts a study.")
