"""Waits for a SQLite file that other processes write to, for as long as they make progress.

SQLite's own wait is not fair: it retries less and less often, and gives up after a fixed time even if each lock was
short. With 48 busy processes, 8 gave up after 30 s.
"""

from __future__ import annotations

import random
import sqlite3
import time
from pathlib import Path

OWN_WAIT = 0.25  # seconds that SQLite itself waits; then the wait here begins again with short pauses
PAUSE = 0.05  # the longest pause in seconds between two attempts
MOST_WAITS = 20  # times the wait, in all: nothing waits for ever


class Turn:
    """The wait of one transaction for the lock of a file."""

    def __init__(self, file: Path | None, wait: float):
        now = time.monotonic()
        self._file, self._wait = file, wait
        self._last = now + MOST_WAITS * wait
        self._deadline = now + wait
        self._seen = self._stamp()

    def comes(self) -> bool:
        """Pause for a short random time. False if nothing was written to the file for `wait` seconds."""
        now, stamp = time.monotonic(), self._stamp()
        if stamp != self._seen:  # another process committed, so the lock is not held for long
            self._seen, self._deadline = stamp, now + self._wait
        if now > min(self._deadline, self._last):
            return False
        time.sleep(random.uniform(0, min(PAUSE, self._wait)))
        return True

    def _stamp(self) -> tuple[int, int] | None:
        """Changes whenever something is committed: the time and size of the write-ahead log."""
        if self._file is None:
            return None
        try:
            found = self._file.with_name(f"{self._file.name}-wal").stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size


def is_busy(error: BaseException) -> bool:
    """Whether SQLite refused because another connection holds a lock."""
    original = getattr(error, "orig", None) or error
    name = getattr(original, "sqlite_errorname", None) or ""
    return isinstance(original, sqlite3.OperationalError) and name.startswith("SQLITE_BUSY")
