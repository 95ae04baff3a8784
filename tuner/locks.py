"""Locks between processes: files that the system unlocks if their process ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout  # torch needs it, so it is on every machine with torch

STEP = 0.05  # seconds between two attempts


@contextmanager
def holding(file: Path, longest: float, *, removes: bool = False) -> Iterator[bool | None]:
    """Inside the block this process alone holds the lock `file`. It gives whether the process had to wait, or None if
    it does not hold the lock: it waited in vain for `longest` seconds.

    removes: whether the file is deleted at the end, while it is held; a lock of a deleted file does not count. Raises
    OSError if the file cannot be created.
    """
    lock = FileLock(file, mode=0o600)
    waited = _waited(lock, longest)
    try:
        yield waited
    finally:
        if removes and waited is not None:
            with suppress(OSError):  # Windows deletes no open file
                file.unlink()
        lock.release()


def _waited(lock: FileLock, longest: float) -> bool | None:
    """Acquire the lock. Whether that took time; None if it did not succeed."""
    with suppress(Timeout):
        lock.acquire(timeout=0)
        return False
    with suppress(Timeout):
        lock.acquire(timeout=longest, poll_interval=STEP)
        return True
    return None
