"""The CPU time that pages which follow a study may use."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator

LEAST_SECONDS = 1.0  # between two readings of a database
SHARE = 100  # after a reading that takes t seconds, wait 100 t (at most 60 s): 1/100 of the time
FOLLOWING = 300  # reading, drawing and sending take at most 1/300 of the time of a core
AT_ONCE = 0.05  # seconds of CPU that may be spent before that
MOST_SILENT = 120.0  # seconds after which a change is sent, even if the budget is spent
EVENT = 0.0002  # seconds of CPU time to send one event to one browser


def first_version() -> int:
    """A number above all versions of an earlier server: its pages may still be open."""
    return int(time.time() * 1000)


class Budget:
    """The seconds of CPU time that may still be used. They grow with time, more slowly on a busy machine."""

    def __init__(self) -> None:
        self._left, self._at = AT_ONCE, time.monotonic()
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def spending(self) -> Iterator[None]:
        """Count the CPU time that this thread uses inside the `with` block."""
        began = time.thread_time()
        try:
            yield
        finally:
            self.spend(time.thread_time() - began)

    def spend(self, seconds: float) -> None:
        """Count seconds of CPU time."""
        with self._lock:
            now = time.monotonic()
            busy = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
            second = 1 / (FOLLOWING * busy)  # the CPU time that one second adds
            grown = min(self._left + (now - self._at) * second, AT_ONCE)
            self._left, self._at = max(grown - seconds, -MOST_SILENT * second), now

    @property
    def is_left(self) -> bool:
        """Whether CPU time may be used now."""
        self.spend(0.0)
        return self._left > 0
