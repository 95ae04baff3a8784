"""All studies of all databases: what the list of studies follows."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from dashboards.server.budget import LEAST_SECONDS, Budget, first_version
from nas.errors import NasError

if TYPE_CHECKING:
    from dashboards.server.sources import Source, StudyCache


class Overview:
    """The versions of all studies. version: grows when a study changes, appears or disappears."""

    address = "/"

    def __init__(self, databases: Callable[[], Sequence[Source]]):
        self.version = first_version()
        self.budget = Budget()
        self._databases = databases
        self._seen: list[object] = []
        self._next_look = 0.0
        self._lock = threading.Lock()

    def look(self) -> int:
        """Update the studies that were read and are due, and return the version."""
        with self._lock:
            if time.monotonic() < self._next_look:
                return self.version
            seen = [each for source in self._databases() for each in _of(source)]
            self.version += seen != self._seen
            self._seen = seen
            self._next_look = time.monotonic() + LEAST_SECONDS
            return self.version


def _version(study: StudyCache) -> int:
    """The version of a study, without waiting: a study that is being read or computed is updated later."""
    if not study.is_read:
        return study.version
    with study.free() as is_free:
        return study.look() if is_free else study.version


def _of(source: Source) -> list[object]:
    try:
        return [(study.address, study.is_read, _version(study)) for study in source.studies()]
    except NasError as error:
        return [(source.key, str(error))]
