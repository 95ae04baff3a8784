"""A small disk that can be filled: a file system in memory. Mounting it needs permission."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from pathlib import Path

MEGABYTES = 192  # the write-ahead log of SQLite may need 64


class Disk:
    """A separate file system in `folder`. Raises OSError if it cannot be mounted."""

    def __init__(self, folder: Path):
        self.folder = folder
        folder.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={MEGABYTES}m", "tmpfs", str(folder)]
        mounted = subprocess.run(command, capture_output=True, text=True)
        if mounted.returncode:
            raise OSError(f"a disk of its own cannot be mounted: {mounted.stderr.strip()}")

    def fill(self, seconds: float) -> None:
        """Leave no byte free for a while."""
        filler = self.folder / "filler"
        try:
            with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
                place = 0
                for size in (2**20, 2**12, 1):
                    with contextlib.suppress(OSError):
                        while True:
                            os.posix_fallocate(file.fileno(), place, size)
                            place += size
            time.sleep(seconds)
        finally:
            filler.unlink()

    def close(self) -> None:
        subprocess.run(["umount", "-l", str(self.folder)], check=False)
