"""What processes that were killed have left over, and how to recognise it. Nothing that a user made matches.

A file is removed only if its name is one that we give, and if no process can still write it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nas.engine import leases

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

STALE_SECONDS = 600.0  # a file that is being written changes more often
CHECKPOINT = re.compile(r"(?:trial|final)-\d{6,}-rung-\d+-[0-9a-f]{16}\.pt")
PARTIAL = re.compile(r"partial-[0-9a-f]{32}-[0-9a-f]{16}\.pt")
UNFINISHED = re.compile(rf"({CHECKPOINT.pattern}|{PARTIAL.pattern})\.\d+(-[0-9a-f]+)?\.unfinished")
RAY_MARK = "tessera.json"  # in the folder of a Ray session that a search started


def unfinished(system: AbstractFileSystem, folder: str, *, now: float | None = None) -> Iterator[str]:
    """The files in a folder of checkpoints whose writing was broken off."""
    now = time.time() if now is None else now
    for each in _files(system, folder):
        if UNFINISHED.fullmatch(_name(each)) and now - _changed(each) > STALE_SECONDS:
            yield each["name"]


def partials(system: AbstractFileSystem, folder: str) -> Iterator[str]:
    """The states of interrupted units in a folder of checkpoints; of use as long as the study has open units."""
    yield from (each["name"] for each in _files(system, folder) if PARTIAL.fullmatch(_name(each)))


def prepared(cache: Path) -> Iterator[Path]:
    """Folders of data whose preparation was broken off."""
    from filelock import FileLock, Timeout

    for folder in sorted(cache.glob("*.unfinished")):
        lock = cache / f"{folder.name.removesuffix('.unfinished')}.lock"
        with contextlib.suppress(Timeout, OSError), FileLock(lock, timeout=0):
            yield folder  # the process that held the lock is gone


def mark_ray_session(folder: str | Path) -> None:
    """Write into the folder of a Ray session that this process has started it."""
    with contextlib.suppress(OSError):  # then it is not removed
        (Path(folder) / RAY_MARK).write_text(json.dumps({"owner": leases.owner_name()}))


def ray_sessions(root: Path | None = None) -> Iterator[Path]:
    """The folders of Ray sessions that were started by searches that have ended, or by this process before."""
    root = Path(os.environ.get("RAY_TMPDIR", tempfile.gettempdir())) / "ray" if root is None else root
    for folder in sorted(root.glob("session_*")):
        if not folder.is_symlink() and _has_ended(folder / RAY_MARK):
            yield folder


def remove_session(folder: Path) -> None:
    """Remove the folder of a Ray session with its logs, and the link to the latest session if it leads there."""
    latest = folder.parent / "session_latest"
    with contextlib.suppress(OSError):
        if latest.is_symlink() and latest.resolve() == folder.resolve():
            latest.unlink()
    shutil.rmtree(folder, ignore_errors=True)


def _has_ended(mark: Path) -> bool:
    try:
        owner = json.loads(mark.read_text())["owner"]
    except (OSError, ValueError, KeyError, TypeError):
        return False  # not ours
    own = leases.owner_name().rpartition("/")[0]
    return leases.is_dead(owner) or (owner.rpartition("/")[0] == own and not _ray_runs())


def _ray_runs() -> bool:
    import sys

    ray = sys.modules.get("ray")
    return ray is not None and ray.is_initialized()


def _files(system: AbstractFileSystem, folder: str) -> list[dict[str, Any]]:
    try:
        return [each for each in system.ls(folder, detail=True) if each["type"] == "file"]
    except (OSError, ValueError):
        return []


def _name(file: dict[str, Any]) -> str:
    return file["name"].rpartition("/")[2]


def _changed(file: dict[str, Any]) -> float:
    """When a file was written last. Unknown is now."""
    found = next((file[key] for key in ("mtime", "LastModified", "created", "updated") if key in file), None)
    if isinstance(found, datetime):
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    return time.time() if found is None else float(found)
