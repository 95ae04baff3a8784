"""Where results are kept: nowhere, in a folder (`tuner.search.folder`), or in the study database.

`nas tune`, `tuner.tune` and `tuner.listen` use the same place if none is chosen: a folder in the user's data directory.
A result is a row with the columns of the database table `measurement`. Rows are only ever added, each as soon as it is
measured: a killed process loses no row, and several processes may write at once.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from kernels.dispatch.tuned import data_folder
from tuner.device import Device
from tuner.measure import resources
from tuner.search.folder import Folder
from tuner.search.row import EVERY, Described, Row, settings

if TYPE_CHECKING:  # the tuner also runs without a database, and must not load its libraries then
    from nas.store import Store

STORAGE = "NAS_STORAGE"  # names the study database, as for `nas`
# Seconds that a call in a user's program waits for a database that another process locks, or that went away: when it is
# opened, and later, when a search of minutes may depend on it.
WAIT, LATER_WAIT = 2.0, 10.0


class Backend(Protocol):
    """Keeps rows."""

    def rows(self, operation: str, problem: str | None = None) -> list[Row]:
        """The rows of an operation on all devices, oldest first. With `problem`, its text: only the rows of that
        problem, and those of EVERY problem."""

    def every_row(self) -> list[Row]:
        """The rows of all operations on all devices."""

    def add(self, device: Described, rows: Sequence[Row]) -> None:
        """Keep new rows of `device`, all of them or none."""

    def pack(self, operation: str, problem: str, device: Device) -> None:
        """Called when a search of the problem has ended."""

    def devices(self) -> Mapping[str, Mapping[str, Any]]:
        """The fingerprint of every device that rows were read of, by its key."""


class Nowhere:
    """Keeps nothing."""

    def rows(self, operation: str, problem: str | None = None) -> list[Row]:
        return []

    def every_row(self) -> list[Row]:
        return []

    def add(self, device: Described, rows: Sequence[Row]) -> None: ...

    def pack(self, operation: str, problem: str, device: Device) -> None: ...

    def devices(self) -> Mapping[str, Mapping[str, Any]]:
        return {}


class Database:
    """The study database: an open store, or a URL or path that is opened when it is first used."""

    def __init__(self, store: Store | str) -> None:
        self._store = store

    @property
    def store(self) -> Store:
        return _opened(self._store) if isinstance(self._store, str) else self._store

    def rows(self, operation: str, problem: str | None = None) -> list[Row]:
        wanted = None if problem is None else (problem, EVERY)
        return self._readable(self.store.measurements(operation, problem=wanted))

    def every_row(self) -> list[Row]:
        return self._readable(self.store.measurements())

    @staticmethod
    def _readable(rows: Iterable[Any]) -> list[Row]:
        """The rows, whose type has the same fields, without those whose configuration or resources are damaged.

        The row of a latency has no implementation, and other details in the place of a configuration.
        """
        plain = [row for row in rows if not row.implementation or settings(row.configuration) is None]
        return [row for row in plain if resources.fault(row.resources) is None]

    def add(self, device: Described, rows: Sequence[Row]) -> None:
        from nas.store import Measurement

        self.store.add_measurements(device.to_dict(), [Measurement(**vars(row)) for row in rows])

    def pack(self, operation: str, problem: str, device: Device) -> None: ...

    def devices(self) -> Mapping[str, Mapping[str, Any]]:
        return self.store.devices()


class Joined:
    """Writes to one back end, and also reads what an older one holds. devices: of both."""

    def __init__(self, newer: Backend, older: Backend) -> None:
        self.newer, self.older = newer, older

    def rows(self, operation: str, problem: str | None = None) -> list[Row]:
        return [*self.older.rows(operation, problem), *self.newer.rows(operation, problem)]

    def every_row(self) -> list[Row]:
        return [*self.older.every_row(), *self.newer.every_row()]

    def add(self, device: Described, rows: Sequence[Row]) -> None:
        self.newer.add(device, rows)

    def pack(self, operation: str, problem: str, device: Device) -> None:
        self.newer.pack(operation, problem, device)

    def devices(self) -> Mapping[str, Mapping[str, Any]]:
        return {**self.older.devices(), **self.newer.devices()}


class StoreFailed(Exception):
    """The place where results are kept cannot be read or written."""


class Guarded:
    """Raises StoreFailed for every error of another back end, so that a caller can go on without it."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend

    def rows(self, operation: str, problem: str | None = None) -> list[Row]:
        with _guarding("read"):
            return self.backend.rows(operation, problem)

    def every_row(self) -> list[Row]:
        with _guarding("read"):
            return self.backend.every_row()

    def add(self, device: Described, rows: Sequence[Row]) -> None:
        with _guarding("written"):
            self.backend.add(device, rows)

    def pack(self, operation: str, problem: str, device: Device) -> None:
        with _guarding("written"):
            self.backend.pack(operation, problem, device)

    def devices(self) -> Mapping[str, Mapping[str, Any]]:
        with _guarding("read"):
            return self.backend.devices()


@contextmanager
def _guarding(what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise StoreFailed(f"the stored results cannot be {what}: {type(error).__name__}: {error}") from error


@cache
def _opened(where: str) -> Store:
    """A store that stays open until the process ends, because a kernel may be tuned at any call."""
    from nas.store import open_store

    store = open_store(where, wait=WAIT, retry=WAIT)
    database = store.database
    database.wait = database.retry = database.retry_writes = LATER_WAIT
    return store


def backend(where: str | Path | None = None) -> Backend:
    """The back end at `where`: a URL or a file that ends in .db is a database, anything else a folder.

    Without `where` it is $NAS_STORAGE if set, else a folder in the user's data directory.
    """
    place = str(where or "")
    if "://" in place or place.endswith(".db"):
        return Database(place)
    if not place and (storage := os.environ.get(STORAGE)):
        return Database(storage)
    return Folder(Path(place)) if place else users_folder()


def users_folder() -> Folder:
    """The folder in the user's data directory."""
    return Folder(data_folder() / "kernels")
