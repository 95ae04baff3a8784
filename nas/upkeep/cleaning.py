"""Removes what a study no longer needs: checkpoints by its policy, and what processes that were killed have left over.

A file is removed only if its name is one that we give, and if no process can still write it.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fsspec

from nas import report as reports
from nas.files import reaching
from nas.report.tables import size
from nas.store.kept import checkpoints
from nas.upkeep import places
from nas.upkeep.policy import DEFAULT, unneeded
from searchspace.wording import plural

if TYPE_CHECKING:
    from nas.store import Reader, Study
    from nas.store.kept import Kept

STALE_SECONDS = 600.0  # a file that is being written changes more often
CHECKPOINT = re.compile(r"(?:trial|final)-\d{6,}-rung-\d+-[0-9a-f]{16}\.pt")
PARTIAL = re.compile(r"partial-[0-9a-f]{32}-[0-9a-f]{16}\.pt")  # the state of an interrupted unit
UNFINISHED = re.compile(rf"({CHECKPOINT.pattern}|{PARTIAL.pattern})\.\d+(-[0-9a-f]+)?\.unfinished")


@dataclass(frozen=True)
class Leftover:
    """Something to remove: what it is, where it is, and its size in bytes."""

    kind: str
    place: str
    size: int


def clean(store: Reader, study: Study, cache: Path, *, dry_run: bool = False) -> list[Leftover]:
    """Remove what `study` no longer needs -> what was removed. cache: where this node prepares data. dry_run: remove
    nothing.

    A search may run meanwhile: what it may need is kept. Whatever cannot be removed is left out, and so is each folder
    of checkpoints that belongs to another database, and this one is its copy. Raises Unreachable if the place of the
    checkpoints does not answer.
    """
    found: list[Leftover] = []
    for kind, place, count, remove in _found(store, study, cache):
        try:
            if not dry_run:
                remove()
        except OSError:  # without permission, or another process has removed it
            continue
        found.append(Leftover(kind, place, count))
    return found


def summary(found: Iterable[Leftover]) -> str:
    """3 checkpoints (1.2 MiB), 1 unfinished file (20 KiB)."""
    kinds: dict[str, list[int]] = {}
    for each in found:
        kinds.setdefault(each.kind, []).append(each.size)
    return ", ".join(f"{plural(len(sizes), kind)} ({size(sum(sizes))})" for kind, sizes in kinds.items())


def drop(uri: str, study: str) -> None:
    """Remove a checkpoint that a later one replaces, if the folder is the study's own; `clean` finds the others."""
    with contextlib.suppress(Exception):  # each kind of URL raises errors of its own
        system, path = fsspec.core.url_to_fs(uri)
        if study in Path(path).parts and CHECKPOINT.fullmatch(path.rpartition("/")[2]):
            system.rm_file(path)


def checkpoint_files(store: Reader, study: Study) -> list[str]:
    """The checkpoints that exist and belong to `study` alone: no other study of its database has them, and their folder
    belongs to this database. Each has the name of a checkpoint, so no other file that a database names is among them.
    """
    own = set(folders(store, study)[0])
    return [each.uri for each in _kept(store, study) if _folder(each) in own and _is_there(each.uri)]


def folders(store: Reader, study: Study) -> tuple[list[str], list[str]]:
    """The folders of the study's checkpoints, those that its search file names and those that hold some: those of this
    database, and those of another one, if this is its copy."""
    named = study.config.get("checkpoints")
    own = [] if not named else [named if "://" in named else str(Path(named).expanduser().absolute())]
    every = dict.fromkeys([*own, *map(_folder, _kept(store, study))])
    owned = {each: places.is_owned(each, study.name, store.database.url) for each in every}
    return [each for each in every if owned[each]], [each for each in every if not owned[each]]


_Found = tuple[str, str, int, Callable[[], Any]]


def _found(store: Reader, study: Study, cache: Path) -> Iterable[_Found]:
    own, _ = folders(store, study)
    yield from _checkpoints(store, study, own)
    yield from _of_folders(store, study, own)
    for each in _prepared(cache):
        yield "folder of unfinished data", str(each), _size(each), partial(shutil.rmtree, each)


def _of_folders(store: Reader, study: Study, own: Iterable[str]) -> Iterable[_Found]:
    is_done = not store.open_units(study.id)
    for folder in own:
        with reaching(folder):
            system, path = fsspec.core.url_to_fs(folder)
            files = system.ls(path, detail=True) if system.isdir(path) else []
            for each in (each for each in files if each["type"] == "file"):
                name = each["name"].rpartition("/")[2]
                remove = each["name"], each["size"] or 0, partial(system.rm_file, each["name"])
                if UNFINISHED.fullmatch(name) and time.time() - _changed(each) > STALE_SECONDS:
                    yield "unfinished file", *remove
                # In a folder without its name, it may be of another study.
                if PARTIAL.fullmatch(name) and is_done and study.name in Path(path).parts:
                    yield "interrupted state", *remove


def _checkpoints(store: Reader, study: Study, own: Sequence[str]) -> Iterable[_Found]:
    keep = study.config.get("keep", DEFAULT)
    if keep == "all":
        return
    best, others = reports.best_and_front(store, study)
    front = {trial.number for trial in (best, *others) if trial}
    for uri in sorted({each.uri for each in unneeded(_kept(store, study), keep, front) if _folder(each) in own}):
        with reaching(uri):
            if _is_there(uri):
                system, path = fsspec.core.url_to_fs(uri)
                yield "checkpoint", uri, system.size(path) or 0, partial(system.rm_file, path)


def _kept(store: Reader, study: Study) -> list[Kept]:
    return store.database.read(lambda connection: checkpoints(connection, study.id))


def _folder(each: Kept) -> str:
    return each.uri.rpartition("/")[0]


def _is_there(uri: str) -> bool:
    """Whether there is a file whose name is that of a checkpoint."""
    system, path = fsspec.core.url_to_fs(uri)
    return CHECKPOINT.fullmatch(path.rpartition("/")[2]) is not None and system.exists(path)


def _prepared(cache: Path) -> Iterator[Path]:
    """Folders of data whose preparation was broken off."""
    from filelock import FileLock, Timeout

    for folder in sorted(cache.glob("*.unfinished")):
        lock = cache / f"{folder.name.removesuffix('.unfinished')}.lock"
        with contextlib.suppress(Timeout, OSError), FileLock(lock, timeout=0):
            yield folder  # the process that held the lock is gone


def _size(folder: Path) -> int:
    """The bytes of the files in a folder."""
    return sum(each.lstat().st_size for each in folder.rglob("*") if each.is_file())


def _changed(file: dict[str, Any]) -> float:
    """When a file was written last. Unknown is now."""
    found = next((file[key] for key in ("mtime", "LastModified", "created", "updated") if key in file), None)
    if isinstance(found, datetime):
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    return time.time() if found is None else float(found)
