"""Removes what a study no longer needs: checkpoints by its policy, unfinished files, stale Ray sessions and logs."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fsspec

from nas import report as reports
from nas.files import reaching
from nas.report.tables import size
from nas.store.kept import checkpoints
from nas.upkeep import leftovers, places
from nas.upkeep.policy import DEFAULT, unneeded

if TYPE_CHECKING:
    from nas.store import Reader, Study
    from nas.store.kept import Kept


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
    of checkpoints that belongs to another database, of which this one is a copy. Raises Unreachable if the place of the
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
    """3 checkpoints (1.2 MiB), 1 Ray session (20 KiB)."""
    kinds: dict[str, list[int]] = {}
    for each in found:
        kinds.setdefault(each.kind, []).append(each.size)
    return ", ".join(f"{len(sizes)} {_plural(kind, len(sizes))} ({size(sum(sizes))})" for kind, sizes in kinds.items())


def _plural(kind: str, count: int) -> str:
    plurals = {"state of an interrupted unit": "states of interrupted units", "unfinished data": "unfinished data"}
    return kind if count == 1 else plurals.get(kind, f"{kind}s")


def drop(uri: str, study: str) -> None:
    """Remove a checkpoint that a later one replaces, if the folder is the study's own; `clean` finds the others."""
    with contextlib.suppress(Exception):  # each kind of URL raises errors of its own
        system, path = fsspec.core.url_to_fs(uri)
        if study in Path(path).parts and leftovers.CHECKPOINT.fullmatch(path.rpartition("/")[2]):
            system.rm_file(path)


def checkpoint_files(store: Reader, study: Study) -> list[str]:
    """The checkpoints that exist and belong to `study` alone: no other study of its database has them, and their folder
    belongs to this database. Each has the name of a checkpoint, so no other file that a database names is among them.
    """
    own = set(folders(store, study)[0])
    return [each.uri for each in _kept(store, study) if _folder(each) in own and _is_there(each.uri)]


def folders(store: Reader, study: Study) -> tuple[list[str], list[str]]:
    """The folders of the study's checkpoints, those that its search file names and those that hold some: those of this
    database, and those of another one, of which this is a copy."""
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
    for each in leftovers.prepared(cache):
        yield "unfinished data", str(each), _size(each), partial(shutil.rmtree, each)
    for each in leftovers.ray_sessions():
        yield "Ray session", str(each), _size(each), partial(leftovers.remove_session, each)


def _of_folders(store: Reader, study: Study, own: Iterable[str]) -> Iterable[_Found]:
    is_done = not store.open_units(study.id)
    for folder in own:
        with reaching(folder):
            system, path = fsspec.core.url_to_fs(folder)
            some = [("unfinished file", each) for each in leftovers.unfinished(system, path)]
            if is_done and study.name in Path(path).parts:  # else another study may use the folder
                some += [("state of an interrupted unit", each) for each in leftovers.partials(system, path)]
            for kind, place in some:
                yield kind, place, system.size(place) or 0, partial(system.rm_file, place)


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
    return leftovers.CHECKPOINT.fullmatch(path.rpartition("/")[2]) is not None and system.exists(path)


def _size(folder: Path) -> int:
    """The bytes of the files in a folder. A file that another process removes meanwhile has none."""
    count = 0
    for root, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                count += Path(root, name).lstat().st_size
    return count
