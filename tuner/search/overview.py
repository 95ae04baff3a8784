"""What a folder of results holds, problem by problem, for a page that shows it.

A file that has not changed since it was last read is not read again.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tuner.search.folder import Folder
from tuner.search.row import FORGOTTEN, Row

Stamp = tuple[int, int, int]


@dataclass
class Overview:
    """The problems in `folder`."""

    folder: Folder
    _known: dict[Path, tuple[Stamp, list[dict[str, Any]]]] = field(default_factory=dict)

    def read(self, seconds: float) -> tuple[list[dict[str, Any]], int]:
        """(the problems on each device, how many files were not read). It reads files for at most `seconds`.

        Of each problem: its operation, dtype, problem and device, the count of its measurements and of those that
        failed, and the lowest milliseconds.
        """
        until, left = time.monotonic() + seconds, 0
        found: list[dict[str, Any]] = []
        for file in self.folder.files():
            with suppress(FileNotFoundError):  # it was packed meanwhile
                status = file.stat()
                stamp = (status.st_ino, status.st_mtime_ns, status.st_size)
                if self._known.get(file, (None,))[0] != stamp:
                    if time.monotonic() > until:
                        left += 1
                        continue
                    self._known[file] = stamp, _grouped(_of_row(row) for row in self.folder.rows_in(file))
                found += self._known[file][1]
        return _grouped(found), left


def _of_row(row: Row) -> dict[str, Any]:
    key = {"operation": row.operation, "dtype": row.dtype, "problem": row.problem, "device": row.device}
    if row.failure == FORGOTTEN:
        return {**key, "count": 0, "failures": 0, "milliseconds": None}
    return {**key, "count": 1, "failures": int(row.failure is not None), "milliseconds": row.milliseconds}


def _grouped(some: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One row for each problem on each device that was measured."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for each in some:
        if each["count"]:
            key = tuple(each[name] for name in ("operation", "dtype", "problem", "device"))
            known = found.setdefault(key, {**each, "count": 0, "failures": 0})
            times = [one["milliseconds"] for one in (known, each) if one["milliseconds"] is not None]
            known["milliseconds"] = min(times, default=None)
            known["count"] += each["count"]
            known["failures"] += each["failures"]
    return [found[key] for key in sorted(found)]
