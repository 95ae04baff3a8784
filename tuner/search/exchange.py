"""Exports and imports measurements, to carry them between machines: JSON lines, gzipped if the name ends in .gz.

The first line is a header, the next lines are devices with their keys, the rest are measurements.
"""

from __future__ import annotations

import gzip
import json
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

from kernels.dispatch import limits
from nas.files import writing
from nas.registry import nearest
from tuner.search.backends import Backend
from tuner.search.folder import DIGITS
from tuner.search.row import Row, schema_of, settings, written

FORMAT = "tessera measurements 1"
_TEXTS = {"device": limits.text, "configuration": limits.text}


def export(store: Backend, path: Path, operation: str | None = None) -> int:
    """Write the measurements of one operation to a file, or those of all operations. Returns how many there are.

    Raises ValueError if the store has none of this operation, and what `nas.files.writing` raises.
    """
    rows = store.every_row() if operation is None else store.rows(operation)
    if operation is not None and not rows:
        known = sorted({row.operation for row in store.every_row()})
        some = f" Known: {', '.join(known)}." if known else ""
        raise ValueError(f"There are no measurements of {operation!r}.{nearest(operation, known)}{some}")
    used = {row.device for row in rows}
    devices = store.devices()
    with writing(path) as file, _packed(path, file) as packed:
        for line in (
            {"format": FORMAT},
            *({"device": value} for key, value in devices.items() if key in used),
            *map(written, rows),
        ):
            packed.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
    return len(rows)


def import_(store: Backend, path: Path) -> int:
    """Add the measurements of a file that are new, those of one device at once -> their number.

    Raises ValueError that names the file, the line, and the mistake.
    """
    devices: dict[str, dict[str, Any]] = {}
    new: dict[str, list[Row]] = {}
    known = set(map(_identity, store.every_row()))
    number = 0
    try:
        for number, line in enumerate(limits.lines(path), 1):
            row = limits.loads(line)
            if number == 1:
                if not isinstance(row, dict) or row.get("format") != FORMAT:
                    raise ValueError(f"does not begin with the format {FORMAT!r}")
            elif isinstance(row, dict) and isinstance(row.get("device"), dict):
                limits.check(row["device"], {"key": limits.text}, "a device")
                devices[row["device"]["key"]] = row["device"]
            else:
                limits.check(row, schema_of(row) | _TEXTS, "a measurement")
                measured = Row(**row)
                _check_configuration(measured)
                if (measured.milliseconds is None) == (measured.failure is None):
                    raise ValueError("needs either milliseconds or a failure")
                if not isinstance(limits.loads(measured.problem), dict):
                    raise ValueError(f"{limits.short(measured.problem)} is no JSON of a problem")
                if measured.device not in devices:
                    raise ValueError(f"names the device {measured.device!r}, which the file does not describe")
                if _identity(measured) not in known:
                    new.setdefault(measured.device, []).append(measured)
        if not number:
            raise ValueError("is empty")
    except (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError) as error:
        where = f"{path}, line {number}" if number else str(path)  # it may be unreadable
        raise ValueError(f"{where}: {str(error)[:500]}") from error
    for key, rows in new.items():
        store.add(_Described(key, devices[key]), rows)
    return sum(map(len, new.values()))


def _check_configuration(row: Row) -> None:
    """Raise ValueError if it cannot be read: that of a kernel is plain, the row of a latency keeps what served it."""
    if row.implementation:
        limits.check({"configuration": row.configuration}, {"configuration": settings}, "a measurement")
    elif not isinstance(limits.loads(row.configuration), dict):
        raise ValueError(f"{limits.short(row.configuration)} is no JSON of the details of a latency")


@dataclass(frozen=True)
class _Described:
    """A device that is known by its description only."""

    key: str
    about: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        return self.about


def _identity(row: Row) -> tuple:
    """What tells a measurement from others. A folder keeps only some digits of a time."""
    names = "operation", "problem", "dtype", "implementation", "configuration", "source", "failure", "turns", "device"
    return *(getattr(row, name) for name in names), row.milliseconds and f"{row.milliseconds:.{DIGITS}g}"


def _packed(path: Path, file: BinaryIO) -> AbstractContextManager[BinaryIO]:
    """To write to `file`, gzipped if the name says so."""
    if path.suffix != ".gz":
        return nullcontext(file)
    return cast(AbstractContextManager[BinaryIO], gzip.GzipFile(path.stem, "wb", fileobj=file, mtime=0))
