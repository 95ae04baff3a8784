"""Where measurements are kept: the table `measurement` of a database, in memory, or an open store.

`nas tune`, `tuner.tune` and `tuner.listen` use the same place if none is chosen: the database $NAS_STORAGE if it is
set, else a SQLite file in the user's data folder. Rows are only added, each as soon as it is measured: a killed process
loses none, and several processes may write at once.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernels.dispatch.tuned import data_folder
from nas.errors import StoreError
from nas.store.records import Measurement

if TYPE_CHECKING:  # SQLAlchemy takes half a second to import, and a machine that only measures may lack it
    from nas.store import Store

STORAGE = "NAS_STORAGE"  # names the study database, as for `nas`
FILE = "measurements.db"  # in the user's data folder
# Seconds that a call in a user's program waits for a database that another process locks, or that went away: when it is
# opened, and later, when a search of minutes may depend on it.
WAIT, LATER_WAIT = 2.0, 10.0
FORGOTTEN = "forgotten"  # the failure of a row that ends the validity of all rows before it
EVERY = "{}"  # the problem of such a row, for all problems of the operation
USERS = "triton"  # the implementation of a user's Triton kernel; it has only this one


class StoreFailed(StoreError):
    """The place where results are kept cannot be read or written."""


class Results:
    """where: a URL, the path of a SQLite file, which is opened when it is first used, or an open store. Without it,
    results are kept in memory. All methods raise StoreFailed if the database cannot be read or written."""

    def __init__(self, where: str | Path | Store | None = None) -> None:
        self.where = where
        self._rows: list[Measurement] = []
        self._devices: dict[str, dict[str, Any]] = {}

    @property
    def store(self) -> Store | None:
        """The database; None if results are kept in memory."""
        if not isinstance(self.where, str | Path):
            return self.where
        return _opened(str(self.where) if "://" in str(self.where) else str(Path(self.where).absolute()))

    def rows(self, operation: str | None = None, problem: str | None = None) -> list[Measurement]:
        """The rows of an operation on all devices, oldest first. With `problem`, its text: only the rows of that
        problem, and those of EVERY problem."""
        wanted = None if problem is None else (problem, EVERY)
        if self._is_absent:
            return []
        with _reaching("read"):
            if (store := self.store) is not None:
                # The row of a latency has no implementation, and other details in the place of a configuration.
                return [row for row in store.measurements(operation, problem=wanted) if _is_readable(row)]
        some = [row for row in self._rows if operation in (None, row.operation)]
        return [row for row in some if wanted is None or row.problem in wanted]

    def add(self, device: Mapping[str, Any], rows: Sequence[Measurement]) -> None:
        """Keep new rows of the device with this fingerprint: all of them or none."""
        with _reaching("written"):
            if (store := self.store) is not None:
                store.add_measurements(device, rows)
                return
        self._devices[device["key"]] = dict(device)
        self._rows += [Measurement(**{**vars(row), "device": device["key"]}) for row in rows]

    def devices(self) -> Mapping[str, Mapping[str, Any]]:
        """The fingerprint of every device, by its key."""
        with _reaching("read"):
            return self._devices if self._is_absent or (store := self.store) is None else store.devices()

    @property
    def _is_absent(self) -> bool:
        """Whether nothing was written to the file yet, so that it is not made only to be read."""
        return isinstance(self.where, str | Path) and "://" not in str(self.where) and not Path(self.where).exists()


def results_at(where: str | Path | None = None) -> Results:
    """The results at `where`: a URL or a SQLite file; by default $NAS_STORAGE, else a file in the user's data folder.

    Where SQLAlchemy is not installed, the default is the memory of this process.
    """
    if not where and not (where := os.environ.get(STORAGE)):
        where = data_folder() / FILE
        try:
            import sqlalchemy  # noqa: F401
        except ImportError:
            return Results()
    return Results(where)


def copied(source: Results, target: Results, operation: str | None = None) -> int:
    """Add to `target` the rows of `source` that it lacks -> their number."""
    known = set(map(_identity, target.rows(operation)))
    devices, new = source.devices(), dict[str, list[Measurement]]()
    for row in source.rows(operation):
        if _identity(row) not in known:
            new.setdefault(row.device, []).append(row)
    for key, rows in new.items():
        target.add(devices[key], rows)
    return sum(map(len, new.values()))


def _identity(row: Measurement) -> tuple:
    """What tells a measurement from others."""
    names = "operation", "problem", "dtype", "implementation", "configuration", "source", "failure", "turns", "device"
    return *(getattr(row, name) for name in names), row.milliseconds


def _is_readable(row: Measurement) -> bool:
    """Whether the configuration can be read: a file that somebody has sent may hold anything."""
    with suppress(ValueError):
        found = json.loads(row.configuration)
        return isinstance(found, dict) and not (row.implementation and any(map(_is_nested, found.values())))
    return False


def _is_nested(value: Any) -> bool:
    return isinstance(value, dict | list)


@contextmanager
def _reaching(how: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise StoreFailed(f"the stored results cannot be {how}: {type(error).__name__}: {error}") from error


@cache
def _opened(where: str) -> Store:
    """A store that stays open until the process ends, because a kernel may be tuned at any call."""
    from nas.store import open_store
    from nas.store.database.engine import file_of, parse

    if (file := file_of(parse(where))) is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
    store = open_store(where, wait=WAIT, retry=WAIT)
    database = store.database
    database.wait = database.retry = database.retry_writes = LATER_WAIT
    return store
