"""One process tunes a call; the others wait for its result.

The processes of one machine, such as the ranks of a distributed job, agree by a lock file in the folder of temporary
files. The system releases the lock if its process ends.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LONGEST = 120.0  # seconds to wait; far less than a collective operation of a distributed job waits for its ranks
STEP = 0.05


@contextmanager
def alone(what: str, longest: float | None = None) -> Iterator[bool | None]:
    """Inside the block this process is the only one that tunes `what`. It gives whether the process had to wait, or
    None if it waited in vain for `longest` seconds; then other processes are in the block too."""
    try:
        import fcntl
    except ImportError:  # this system has no such locks
        yield False
        return
    try:
        handle = os.open(_file(what), os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
    except OSError:  # there is no folder for temporary files
        yield False
        return
    try:
        until = time.monotonic() + (LONGEST if longest is None else longest)
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


def _file(what: str) -> Path:
    name = hashlib.sha256(what.encode()).hexdigest()[:24]
    owner = os.getuid() if hasattr(os, "getuid") else 0
    return Path(tempfile.gettempdir()) / f"tessera-tuning-{owner}-{name}.lock"
