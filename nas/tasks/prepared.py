"""Prepares data once per node, even if several worker processes need it at the same time."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock


def prepared(cache: Path, key: str, make: Callable[[Path], None]) -> Path:
    """The folder `cache/key`; `make(folder)` fills it if it does not exist.

    One process fills it while the others wait. The operating system frees the lock of a process that dies. The folder
    gets its name only when it is complete, so a process that is killed leaves nothing that looks like data.
    """
    final = cache / key
    if final.is_dir():
        return final
    cache.mkdir(parents=True, exist_ok=True)
    with FileLock(cache / f"{key}.lock"):
        if final.is_dir():
            return final
        unfinished = cache / f"{key}.unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)  # left by a process that was killed
        unfinished.mkdir()
        try:
            make(unfinished)
            unfinished.replace(final)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    return final
