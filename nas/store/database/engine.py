"""Connections to SQLite or PostgreSQL, and transactions that are retried if the connection is lost.

A transaction is a function of a connection. It may be run several times. If an earlier run was committed but its answer
was lost, the function must find this out itself; see the tokens and attempts in `models`.
"""

from __future__ import annotations

import os
import random
import sqlite3
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.util import LRUCache

from nas.errors import StoreError
from nas.store.database.diagnosis import NO_WRITES, explain, is_full, may_pass, sqlstate
from nas.store.database.secrets import holds_secret, redacted, shown
from nas.store.database.waiting import OWN_WAIT, Turn, is_busy

T = TypeVar("T")
WAIT_SECONDS = 30.0  # how long to wait for a lock on a SQLite file to which nothing is written meanwhile
RETRY_SECONDS = 60.0  # how long to wait for a PostgreSQL server that went away
# Of libpq. Without them a network that fails silently holds a search for hours: nothing tells it that no answer comes.
NETWORK = {"connect_timeout": 10, "keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 4}
NETWORK |= {"tcp_user_timeout": 30_000}  # milliseconds without an acknowledgement
FORM = "write postgresql://user@host/name. The password belongs into ~/.pgpass or $PGPASSWORD."
CACHE_KIB = 64 * 1024  # SQLite cache of each connection
SPACE_PAUSE = 1.0  # seconds between two attempts on a full disk
FIRST_PAUSE, LONGEST_PAUSE = 0.02, 2.0  # seconds between two attempts

LOG_PAGES = 16 * 1024  # of 4 KiB: the length of the write-ahead log at which SQLite makes a checkpoint


class _Statements(LRUCache[tuple[Any, ...], Any]):
    """Compiled statements of all engines of this process; SQLAlchemy keeps those of each engine alone.

    To compile a query takes longer than to run it on a small study, and a process may open many studies.
    """

    def get(self, key: tuple[Any, ...], default: Any = None) -> Any:
        return super().get(_of_any_engine(key), default)

    def __setitem__(self, key: tuple[Any, ...], value: Any) -> None:
        super().__setitem__(_of_any_engine(key), value)


def _of_any_engine(key: tuple[Any, ...]) -> tuple[Any, ...]:
    """The same statement for another server of the same kind and version has the same key."""
    dialect, *statement = key
    return (type(dialect), getattr(dialect, "server_version_info", None), *statement)


SHARED = {"compiled_cache": _Statements(500)}  # as many as SQLAlchemy keeps for one engine


class Database:
    """An engine that retries its transactions. Its methods raise StoreError, which tells the user what to do."""

    def __init__(
        self,
        url: URL,
        *,
        wait: float = WAIT_SECONDS,
        retry: float = RETRY_SECONDS,
        reads_only: bool = False,
        cache_kib: int = CACHE_KIB,
    ):
        """reads_only: whether the database itself refuses every change through these connections. cache_kib: of each
        of them, if it only reads SQLite."""
        self.url = url
        self.place = _place(url)
        self.file = file_of(url)
        self.wait = wait
        self.retry = retry
        self.retry_writes = 0.0 if reads_only else retry  # such connections never write, so a refusal does not pass
        self.engine = _engine(url, wait, reads_only, cache_kib)
        self._writer = self.engine.execution_options(writes=True)
        # Called when the disk of the database is full: whether to wait a moment and try again. None: give up.
        self.no_space: Callable[[], bool] | None = None

    @property
    def dialect(self) -> str:
        return self.engine.dialect.name

    def read(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in a transaction that changes nothing."""
        return self._run(self.engine, work, self.retry)

    def write(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in a transaction: when this returns, all its changes are committed; if it raises, none are."""
        return self._run(self._writer, work, self.retry_writes)

    def at_once(self, work: Callable[[Connection], T], *, writes: bool) -> T:
        """As `read` and `write` without retries: for the first contact, where a wrong URL should fail quickly."""
        return self._run(self._writer if writes else self.engine, work, 0.0)

    def close(self) -> None:
        self.engine.dispose()

    def _run(self, engine: Engine, work: Callable[[Connection], T], patience: float) -> T:
        deadline = time.monotonic() + patience
        pause = FIRST_PAUSE
        turn: Turn | None = None
        while True:
            try:
                with transaction(engine) as connection:
                    return work(connection)
            except (SQLAlchemyError, sqlite3.Error) as error:
                if is_busy(error):
                    turn = turn or Turn(self.file, self.wait)
                    if turn.comes():
                        continue
                if is_full(error) and self.no_space and self.no_space():
                    time.sleep(SPACE_PAUSE)
                    continue
                if not may_pass(error) or time.monotonic() + pause > deadline:
                    explained = explain(error, self.place, self.wait)
                    if explained is None:
                        raise
                    raise explained from error
                if sqlstate(error) in NO_WRITES:  # another server may be the primary now: connect again
                    self.engine.dispose()
            except BaseException as error:
                traceback.clear_frames(error.__traceback__)  # those of an interrupted statement hold SQLite's lock
                raise
            time.sleep(pause * random.uniform(0.5, 1.0))  # random: two that collided should not collide again
            pause = min(2 * pause, LONGEST_PAUSE)


@contextmanager
def transaction(engine: Engine) -> Iterator[Connection]:
    """A connection in a transaction, which is committed at the end, or rolled back after an error."""
    with engine.begin() as connection:
        if engine.dialect.name == "sqlite":
            _begin_sqlite(connection)
        yield connection


def parse(where: str | Path) -> URL:
    """The URL of a database: a path is a SQLite file, postgresql:// is PostgreSQL through psycopg.

    Raises StoreError if `where` is neither, is a database in memory, has an unknown user (~NAME), another driver, or
    options behind the path of a SQLite file.
    """
    if isinstance(where, Path) or "://" not in where:
        if isinstance(where, str) and holds_secret(where) and not Path(where).exists():
            raise StoreError(f"What names the database looks like a URL with a password, but {FORM}")
        return URL.create("sqlite", database=str(_expanded(Path(where))))
    try:
        url = make_url(where)
    except (ArgumentError, ValueError):
        raise StoreError(f"{redacted(where)!r} is not the URL of a database: {FORM}") from None
    kind = url.drivername.partition("+")[0]
    if kind in ("postgresql", "postgres"):
        return url.set(drivername="postgresql+psycopg")
    if kind != "sqlite":
        raise StoreError(f"A study lives in SQLite or PostgreSQL, not in {kind!r}: give a path or postgresql://...")
    if url.drivername not in ("sqlite", "sqlite+pysqlite"):
        raise StoreError(f"There is no driver {url.drivername!r} for a study database: write sqlite:///PATH.")
    if url.host or url.username:
        raise StoreError("A SQLite database is on this machine: give its path, or sqlite:///PATH.")
    if url.database in (None, "", ":memory:"):
        raise StoreError("A database in memory dies with its process and is seen by no other: give a path to a file.")
    if url.query and not ((url.database or "").startswith("file:") and "uri" in url.query):
        raise StoreError(
            f"The path of a SQLite database takes no options, but got {', '.join(sorted(url.query))}: write "
            "sqlite:///PATH. Commands that only read never change the file."
        )
    return url


def _expanded(path: Path) -> Path:
    try:
        return path.expanduser()
    except RuntimeError as error:  # ~NAME of an unknown user
        raise StoreError(f"There is no study database {path}: {str(error).rstrip('.')}.") from None


def file_of(url: URL) -> Path | None:
    """The file of a SQLite database, None for PostgreSQL and for SQLite's own file: URLs."""
    named = url.database or ""
    return Path(named) if url.drivername.startswith("sqlite") and not named.startswith("file:") else None


def _place(url: URL) -> str:
    if url.drivername.startswith("sqlite"):
        return f"The study database {url.database}"
    return f"PostgreSQL at {shown(url)}"


def _engine(url: URL, wait: float, reads_only: bool, cache_kib: int) -> Engine:
    if url.drivername.startswith("sqlite"):
        engine = create_engine(
            _unchanged(url) if reads_only else url,
            connect_args={"timeout": min(wait, OWN_WAIT)},
            execution_options=SHARED,
        )
        prepare = partial(_prepare_reading, cache_kib=cache_kib) if reads_only else _prepare_sqlite
        event.listen(engine, "connect", lambda connection, _record: prepare(connection, wait))
        return engine
    if "@" in f"{url.host}{url.database}":
        raise StoreError(f"The URL of the database has an @ that belongs to its password: write %40. Else {FORM}")
    arguments = {name: value for name, value in NETWORK.items() if name not in url.query}
    options = SHARED | ({"postgresql_readonly": True} if reads_only else {})
    try:
        engine = create_engine(
            url, pool_pre_ping=True, pool_timeout=wait, connect_args=arguments, execution_options=options
        )
    except ModuleNotFoundError as error:
        raise StoreError('PostgreSQL needs psycopg: pip install "tessera-nas[postgres]".') from error
    if reads_only:
        event.listen(engine, "connect", lambda connection, _record: _prepare_reading_postgres(connection))
    return engine


def _unchanged(url: URL) -> URL:
    """The URL of a SQLite file that is not made if it is missing, and that may lie in a place without write permission.

    A file with a write-ahead log needs files next to it. Without permission to make them, SQLite reads the file alone
    (immutable), which is right if no log is there.
    """
    file = file_of(url)
    if file is None:
        return url
    log = file.with_name(f"{file.name}-wal")
    if os.access(file, os.W_OK) and os.access(file.absolute().parent, os.W_OK):
        mode = {"mode": "rw"}
    else:
        mode = {"mode": "ro"} if log.exists() else {"mode": "ro", "immutable": "1"}
    return url.set(database=f"file:{quote(str(file.absolute()))}", query={**mode, "uri": "true"})


def _prepare_reading(connection: sqlite3.Connection, _wait: float, *, cache_kib: int) -> None:
    connection.isolation_level = None
    connection.execute("PRAGMA query_only = ON")
    connection.execute(f"PRAGMA cache_size = -{cache_kib}")


def _prepare_reading_postgres(connection: Any) -> None:
    """Summaries of large studies: to compile their queries takes longer than it saves. Old servers have no `jit`."""
    connection.autocommit = True  # a setting of the session, not of its first transaction
    connection.execute("SELECT set_config(name, 'off', false) FROM pg_settings WHERE name = 'jit'")
    connection.autocommit = False


def _prepare_sqlite(connection: sqlite3.Connection, wait: float) -> None:
    connection.isolation_level = None  # `_begin_sqlite` sends BEGIN; the driver would send it too late
    cursor = connection.cursor()
    _write_ahead(cursor, wait)
    cursor.execute("PRAGMA synchronous = NORMAL")  # kill -9 loses nothing; a power cut at most the last commits
    cursor.execute("PRAGMA foreign_keys = ON")
    # For studies of 100,000 trials: a front is computed in memory (the default cache of 2 MB is too small), and a
    # checkpoint, which waits for the disk, is made every 64 MB instead of every 4 MB.
    cursor.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
    cursor.execute(f"PRAGMA wal_autocheckpoint = {LOG_PAGES}")
    cursor.close()


def _write_ahead(cursor: sqlite3.Cursor, wait: float) -> None:
    """Turn on the write-ahead log. If another connection works, SQLite refuses at once; its timeout does not apply."""
    deadline = time.monotonic() + wait
    while cursor.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        try:
            cursor.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(FIRST_PAUSE)


def _begin_sqlite(connection: Connection) -> None:
    # A writer takes the lock at once. If it read first and asked for the lock later, it would fail instead of wait.
    writes = connection.get_execution_options().get("writes", False)
    # Through the driver: there are three transactions for each trial, and SQLAlchemy takes ten times as long for this.
    # Not by a listener either: once there is one, SQLAlchemy looks for others at every statement.
    connection.connection.cursor().execute("BEGIN IMMEDIATE" if writes else "BEGIN")
