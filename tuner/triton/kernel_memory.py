"""Where measurements of other people's kernels are kept: a folder of JSON lines, or the study database.

A measurement is a row with the columns of the database. In a folder each kernel has a file, and a row is appended the
moment it is measured: whoever is killed loses none, and several processes may write.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from tuner.device import Device
from tuner.measure.measure import timing
from tuner.outcome import Kind, Outcome

STORAGE = "NAS_STORAGE"  # names the study database, as for `nas`
IMPLEMENTATION = "triton"
Row = dict[str, Any]


class Memory(Protocol):
    """Rows of a kernel, whatever device they are of, oldest first; and new ones."""

    def rows(self, kernel: str) -> list[Row]: ...

    def add(self, device: Device, rows: Sequence[Row]) -> None: ...


class Forgetful:
    """Keeps nothing."""

    def rows(self, kernel: str) -> list[Row]:
        return []

    def add(self, device: Device, rows: Sequence[Row]) -> None: ...


class Folder:
    """JSON lines, a file a kernel. Every row holds the fingerprint of its device."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def rows(self, kernel: str) -> list[Row]:
        found = []
        with suppress(FileNotFoundError):
            for line in self._file(kernel).read_text(encoding="utf-8", errors="replace").splitlines():
                with suppress(ValueError):  # the end of one that was cut short
                    row = json.loads(line)
                    if isinstance(row, dict) and {"device", "problem", "configuration", "source"} <= set(row):
                        found.append({**row, "about": row["device"], "device": row["device"]["key"]})
        return found

    def add(self, device: Device, rows: Sequence[Row]) -> None:
        lines = [json.dumps({**row, "device": device.to_dict()}, separators=(",", ":")) for row in rows]
        by_kernel: dict[str, list[str]] = {row["operation"]: [] for row in rows}
        for row, line in zip(rows, lines, strict=True):
            by_kernel[row["operation"]].append(line)
        self.path.mkdir(parents=True, exist_ok=True)
        for kernel, some in by_kernel.items():
            # One write, and a new line before each: what another process left half-written spoils no row but its own.
            text = "".join(f"\n{line}" for line in some).encode()
            handle = os.open(self._file(kernel), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            try:
                os.write(handle, text)
            finally:
                os.close(handle)

    def _file(self, kernel: str) -> Path:
        name = "".join(letter if letter.isalnum() or letter in "._-" else "-" for letter in kernel)
        return self.path / f"{name[-180:]}.jsonl"


class Database:
    """The study database at a URL or path; its libraries are loaded when it is used."""

    def __init__(self, where: str) -> None:
        self.where = where

    def rows(self, kernel: str) -> list[Row]:
        store = _store(self.where)
        devices = store.devices()
        return [{**asdict(row), "about": devices.get(row.device, {})} for row in store.measurements(kernel)]

    def add(self, device: Device, rows: Sequence[Row]) -> None:
        from nas.store import Measurement

        _store(self.where).add_measurements(device.to_dict(), [Measurement(**row) for row in rows])


@cache
def _store(where: str) -> Any:
    """Open until the process ends: a kernel may be tuned at any call."""
    from nas.store import open_store

    return open_store(where)


def memory(where: str | Path | None = None) -> Memory:
    """What `where` names: a URL or a file that ends in .db is a database, else it is a folder.

    Without it $NAS_STORAGE, else a folder among the user's own data.
    """
    place = str(where or "")
    if "://" in place or place.endswith(".db"):
        return Database(place)
    if not place and (storage := os.environ.get(STORAGE)):
        return Database(storage)
    data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    return Folder(Path(place) if place else data / "tessera" / "kernels")


def row(
    kernel: str,
    problem: str,
    dtype: str,
    configuration: str,
    source: str,
    outcome: Outcome,
    turns: str | None = None,
) -> Row:
    """The row of an outcome."""
    values: Row = {"milliseconds": None, "low": None, "high": None, "samples": ()}
    if outcome.samples:
        found = timing(outcome.samples)
        values = {
            "milliseconds": found.median,
            "low": found.low,
            "high": found.high,
            "samples": tuple(outcome.samples),
        }
    return {
        "operation": kernel,
        "problem": problem,
        "dtype": dtype,
        "implementation": IMPLEMENTATION,
        "configuration": configuration,
        "source": source,
        "failure": None if outcome.samples else outcome.kind.value,
        "message": outcome.message or None,
        "turns": turns,
        **values,
    }


def outcome_of(known: Mapping[str, Any]) -> Outcome:
    """What came of the measurement of a row."""
    if known.get("milliseconds") is not None:
        return Outcome(Kind.TIMED, tuple(known.get("samples") or (known["milliseconds"],)))
    kind = known.get("failure")
    return Outcome(Kind(kind) if kind in set(Kind) else Kind.CRASHED, message=known.get("message") or "")


def configuration_text(values: Mapping[str, Any]) -> str:
    """Canonical JSON; what JSON has no word for, such as a dtype, as it prints."""
    return json.dumps(dict(sorted(values.items())), separators=(",", ":"), default=str)
