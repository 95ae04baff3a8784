"""Where results are kept: nowhere, in a folder of JSON lines, or in the study database.

A result is a row with the columns of the database table `measurement`. Rows are only ever added. In a folder each
operation has a file, and each row is appended as soon as it is measured: a killed process loses no row, and several
processes may write at once.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from kernels.dispatch import limits
from tuner.device import Device

if TYPE_CHECKING:  # the tuner also runs without a database, and must not load its libraries then
    from nas.store import Store

SCHEMA = dict.fromkeys(("operation", "problem", "dtype", "implementation", "configuration", "source"), limits.text)
SCHEMA |= dict.fromkeys(("milliseconds", "low", "high"), limits.amount_or_null)
SCHEMA |= dict.fromkeys(("failure", "message", "turns"), limits.text_or_null) | {"samples": limits.amounts}
STORAGE = "NAS_STORAGE"  # names the study database, as for `nas`


@dataclass(frozen=True, kw_only=True)
class Row:
    """One measurement; the fields are those of `nas.store.Measurement`, where they are described."""

    operation: str
    problem: str
    dtype: str
    implementation: str
    configuration: str
    source: str
    milliseconds: float | None = None
    low: float | None = None
    high: float | None = None
    samples: Sequence[float] = ()
    failure: str | None = None
    message: str | None = None
    turns: str | None = None
    device: str = ""


class Backend(Protocol):
    """Keeps rows."""

    def rows(self, operation: str) -> list[Row]:
        """The rows of an operation on all devices, oldest first."""

    def add(self, device: Device, rows: Sequence[Row]) -> None:
        """Keep new rows of `device`, all of them or none."""

    def devices(self) -> Mapping[str, Mapping[str, Any]]:
        """The fingerprint of every device that rows were read of, by its key."""


class Nowhere:
    """Keeps nothing."""

    def rows(self, operation: str) -> list[Row]:
        return []

    def add(self, device: Device, rows: Sequence[Row]) -> None: ...

    def devices(self) -> Mapping[str, Mapping[str, Any]]:
        return {}


class Folder:
    """JSON lines, one file per operation. Every row holds the fingerprint of its device."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._devices: dict[str, Mapping[str, Any]] = {}

    def rows(self, operation: str) -> list[Row]:
        found = []
        for line in self._lines(operation):
            with suppress(ValueError, KeyError, TypeError):  # a line that was cut short or damaged
                written = limits.loads(line)
                limits.check(written, {name: check for name, check in SCHEMA.items() if name in written}, "a row")
                limits.check(device := written.pop("device"), {"key": limits.text}, "a device")
                found.append(Row(**{name: written[name] for name in _NAMES if name in written}, device=device["key"]))
                self._devices[device["key"]] = device
        return found

    def _lines(self, operation: str) -> Iterator[str]:
        """The lines of the file of an operation; a line that is too long is left out."""
        with suppress(FileNotFoundError), self._file(operation).open("rb") as file:
            is_whole = True
            while line := file.readline(limits.MOST_LINE):
                if is_whole and (len(line) < limits.MOST_LINE or line.endswith(b"\n")):
                    yield line.decode("utf-8", errors="replace")
                is_whole = line.endswith(b"\n")

    def add(self, device: Device, rows: Sequence[Row]) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        by_operation: dict[str, list[str]] = {}
        for row in rows:
            line = json.dumps({**asdict(row), "device": device.to_dict()}, separators=(",", ":"))
            by_operation.setdefault(row.operation, []).append(line)
        for operation, lines in by_operation.items():
            # One write, with a newline before each row: a row that another process left half-written spoils no other.
            text = "".join(f"\n{line}" for line in lines).encode()
            handle = os.open(self._file(operation), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            try:
                os.write(handle, text)
            finally:
                os.close(handle)

    def devices(self) -> Mapping[str, Mapping[str, Any]]:
        return self._devices

    def _file(self, operation: str) -> Path:
        name = "".join(letter if letter.isalnum() or letter in "._-" else "-" for letter in operation)
        return self.path / f"{name[-180:]}.jsonl"


class Database:
    """The study database: an open store, or a URL or path that is opened when it is first used."""

    def __init__(self, store: Store | str) -> None:
        self._store = store

    @property
    def store(self) -> Store:
        return _opened(self._store) if isinstance(self._store, str) else self._store

    def rows(self, operation: str) -> list[Row]:
        return self.store.measurements(operation)  # type: ignore[return-value]  # the same fields

    def add(self, device: Device, rows: Sequence[Row]) -> None:
        from nas.store import Measurement

        self.store.add_measurements(device.to_dict(), [Measurement(**vars(row)) for row in rows])

    def devices(self) -> Mapping[str, Mapping[str, Any]]:
        return self.store.devices()


class StoreFailed(Exception):
    """The place where results are kept cannot be read or written."""


class Guarded:
    """Raises StoreFailed for every error of another back end, so that a caller can go on without it."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend

    def rows(self, operation: str) -> list[Row]:
        with _guarding("read"):
            return self.backend.rows(operation)

    def add(self, device: Device, rows: Sequence[Row]) -> None:
        with _guarding("written"):
            self.backend.add(device, rows)

    def devices(self) -> Mapping[str, Mapping[str, Any]]:
        with _guarding("read"):
            return self.backend.devices()


@contextmanager
def _guarding(what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise StoreFailed(f"the stored results cannot be {what}: {type(error).__name__}: {error}") from error


_NAMES = [each.name for each in fields(Row) if each.name != "device"]


@cache
def _opened(where: str) -> Store:
    """A store that stays open until the process ends, because a kernel may be tuned at any call."""
    from nas.store import open_store

    return open_store(where)


def backend(where: str | Path | None = None) -> Backend:
    """The back end at `where`: a URL or a file that ends in .db is a database, anything else a folder.

    Without `where` it is $NAS_STORAGE if set, else a folder in the user's data directory.
    """
    place = str(where or "")
    if "://" in place or place.endswith(".db"):
        return Database(place)
    if not place and (storage := os.environ.get(STORAGE)):
        return Database(storage)
    data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    return Folder(Path(place) if place else data / "tessera" / "kernels")
