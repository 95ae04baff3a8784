"""How much time the pages that follow something may take."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator

LEAST_SECONDS = 1.0  # between two looks
SHARE = 100  # looking at a database takes at most 1/100 of the time
FOLLOWING = 300  # looking, drawing and telling take at most 1/300 of the time of a core
AT_ONCE = 0.05  # seconds of CPU that may be spent before that
MOST_SILENT = 120.0  # seconds until a change is told, whatever that costs
EVENT = 0.0002  # seconds of CPU for one event to one browser


def first_version() -> int:
    """A number that is above all versions of an earlier server, whose pages may still be open."""
    return int(time.time() * 1000)


class Budget:
    """Seconds of CPU that are left. They grow with time, on a busy machine slower: a search gets less there too."""

    def __init__(self) -> None:
        self._left, self._at = AT_ONCE, time.monotonic()
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def spending(self) -> Iterator[None]:
        """Count the CPU time of what this thread does."""
        began = time.thread_time()
        try:
            yield
        finally:
            self.spend(time.thread_time() - began)

    def spend(self, seconds: float) -> None:
        """Count CPU time."""
        with self._lock:
            now = time.monotonic()
            busy = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
            second = 1 / (FOLLOWING * busy)  # what a second adds
            grown = min(self._left + (now - self._at) * second, AT_ONCE)
            self._left, self._at = max(grown - seconds, -MOST_SILENT * second), now

    @property
    def is_left(self) -> bool:
        """Whether something may be spent now."""
        self.spend(0.0)
        return self._left > 0
