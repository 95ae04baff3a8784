"""Locks between processes: files that the system unlocks if their process ends."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

STEP = 0.05  # seconds between two attempts


@contextmanager
def holding(file: Path, longest: float) -> Iterator[bool | None]:
    """Inside the block this process alone holds the lock `file`. It gives whether the process had to wait, or None if
    it does not hold the lock: it waited in vain for `longest` seconds. Systems without such locks give False.

    Raises OSError if the file cannot be created.
    """
    try:
        import fcntl
    except ImportError:
        yield False
        return
    handle = os.open(file, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
    try:
        until = time.monotonic() + longest
        waited: bool | None = False
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                waited = True
            if time.monotonic() > until:
                waited = None
                break
            time.sleep(STEP)
        yield waited
    finally:
        os.close(handle)
