"""Data made once a node, however many worker processes ask for it at the same time."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def prepared(cache: Path, key: str, make: Callable[[Path], None]) -> Path:
    """The folder `cache/key`, filled by `make(folder)` unless it is there already.

    One process makes it while the others wait; it appears under its name only when it is whole, so a process that is
    killed half way leaves nothing that another could mistake for data.
    """
    final = cache / key
    if final.is_dir():
        return final
    cache.mkdir(parents=True, exist_ok=True)
    with _locked(cache / f"{key}.lock"):
        if final.is_dir():
            return final
        unfinished = cache / f"{key}.unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)  # what a killed process left
        unfinished.mkdir()
        try:
            make(unfinished)
            unfinished.replace(final)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    return final


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock that the operating system drops when this process dies."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
