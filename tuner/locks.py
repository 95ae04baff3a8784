"""Locks between processes: files that the system unlocks if their process ends."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

STEP = 0.05  # seconds between two attempts


@contextmanager
def holding(file: Path, longest: float, *, removes: bool = False) -> Iterator[bool | None]:
    """Inside the block this process alone holds the lock `file`. It gives whether the process had to wait, or None if
    it does not hold the lock: it waited in vain for `longest` seconds. Systems without such locks give False.

    removes: whether the file is deleted at the end. Raises OSError if the file cannot be created.
    """
    try:
        import fcntl
    except ImportError:
        yield False
        return
    until = time.monotonic() + longest
    waited: bool | None = False
    handle = _opened(file)
    try:
        while True:
            with suppress(OSError):
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is_at(handle, file):
                    break
            waited = True
            if time.monotonic() > until:
                waited = None
                break
            time.sleep(STEP)
            if not _is_at(handle, file):  # the process that held it has deleted it
                new = _opened(file)
                os.close(handle)
                handle = new
        try:
            yield waited
        finally:
            if removes and waited is not None:
                with suppress(OSError):
                    file.unlink()
    finally:
        os.close(handle)


def _opened(file: Path) -> int:
    return os.open(file, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)


def _is_at(handle: int, file: Path) -> bool:
    """Whether an open file is the one that has this name now."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(handle), file.stat())
    return False
