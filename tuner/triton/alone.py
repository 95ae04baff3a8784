"""One process tunes a call; the others wait for its result.

The processes of one machine, such as the ranks of a distributed job, agree by a lock file in the folder of temporary
files. The system releases the lock if its process ends.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tuner.locks import holding

LONGEST = 120.0  # seconds to wait; far less than a collective operation of a distributed job waits for its ranks


@contextmanager
def alone(what: str, longest: float | None = None) -> Iterator[bool | None]:
    """Inside the block this process is the only one that tunes `what`. It gives whether the process had to wait, or
    None if it waited in vain for `longest` seconds; then other processes are in the block too. Where no lock file can
    be opened, it does not wait."""
    with ExitStack() as stack:
        try:
            longest = LONGEST if longest is None else longest
            waited = stack.enter_context(holding(_file(what), longest, removes=True))
        except OSError:  # the folder is read-only, or somebody else's file is in its place
            waited = False
        yield waited


def _file(what: str) -> Path:
    name = hashlib.sha256(what.encode()).hexdigest()[:16]
    owner = os.getuid() if hasattr(os, "getuid") else 0
    return Path(tempfile.gettempdir()) / f"tessera-tuning-{owner}-{name}.lock"
