"""Watches the disks of a search: it warns before one is full, and pauses the search instead of letting it fail."""

from __future__ import annotations

import errno
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from nas.report.tables import size

RESERVE = 64 * 2**20  # bytes that stay free, for the database and other programs
WARN_TIMES = 10  # a warning comes when less than ten times the space is left at which the search pauses
LOOK_SECONDS = 2.0  # between two looks
FULL = (errno.ENOSPC, errno.EDQUOT)  # the disk, or the quota
FULL_SECONDS = 30.0  # how long the search pauses after a write failed, although space seems to be left (a quota)


class Disks:
    """The disks that hold `folders`. say: prints a line for people. free: the free bytes at a place (`free_bytes`)."""

    def __init__(
        self,
        folders: Iterable[Path],
        say: Callable[[str], None],
        free: Callable[[Path], int] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folders = list(folders)
        self._say, self._free, self._clock = say, free or free_bytes, clock
        self._need = RESERVE
        self._looked = self._full_until = float("-inf")
        self._warned = False
        self.short = False  # whether the search pauses

    def hold(self, files: int, largest: int) -> None:
        """Keep space for `files` files of `largest` bytes."""
        self._need = max(self._need, RESERVE + files * largest)

    def failed(self, why: str, seconds: float | None = None) -> None:
        """Something could not be written, because the disk was full. No unit starts for `seconds`, or FULL_SECONDS."""
        self._full_until = self._clock() + (FULL_SECONDS if seconds is None else seconds)
        if not self.short:
            self._say(f"Paused: {why} The search goes on when there is space.")
        self.short = True

    def allow(self) -> bool:
        """Whether there is space for another unit. It looks every two seconds, and says if the answer changes."""
        now = self._clock()
        if now - self._looked < LOOK_SECONDS or now < self._full_until:
            return not self.short
        self._looked = now
        found = [(self._free(place), place) for place in map(existing, self._folders)]
        if not found:
            self.short = False
            return True
        free, place = min(found)
        if free < self._need:
            self._pause(free, place)
        else:
            self._go_on(free, place)
        return not self.short

    def _pause(self, free: int, place: Path) -> None:
        if not self.short:
            self._say(
                f"Paused: {size(free)} are free at {place}, and the search needs {size(self._need)}. Free some space, "
                "and it goes on. `nas clean STUDY` removes files that are no longer needed."
            )
        self.short = True

    def _go_on(self, free: int, place: Path) -> None:
        if self.short:
            self._say(f"There is space again at {place}: the search goes on.")
        self.short = False
        low = free < WARN_TIMES * self._need
        if low and not self._warned:
            self._say(f"Warning: {size(free)} are free at {place}. The search pauses below {size(self._need)}.")
        self._warned = low


def free_bytes(place: Path) -> int:
    """The free bytes of the disk that holds `place`. Some file systems, such as /proc, do not know: any number fits."""
    disk = shutil.disk_usage(place)
    return disk.free if disk.total else sys.maxsize


def existing(folder: Path) -> Path:
    """The folder itself, or the nearest one above it that exists and can be seen."""
    # Path.exists raises for a name that is too long and in a folder of others.
    return next((each for each in (folder, *folder.parents) if os.path.exists(each)), Path("/"))  # noqa: PTH110
