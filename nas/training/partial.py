"""Checkpoints in the middle of a rung: an interrupted unit saves one, and the next run of the same unit continues it.

Its name is a hash of everything that defines the unit, so no other unit can use it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import PurePosixPath

import fsspec

from nas.files import reaching
from nas.training import checkpoints, untrusted
from nas.training.loop import Training
from nas.work import Checkpoint, Work

# How and where a unit runs, and what is noted at its end, does not define it.
PLACE = ("threads", "device", "cache", "checkpoint", "seconds", "metric", "tested")


def save(training: Training, work: Work) -> None:
    """Save the state of `training`, which is in the middle of the unit `work`. Then remove earlier such states.

    Raises NasError as `checkpoints.write` does, and if the earlier ones cannot be looked up.
    """
    if work.checkpoint is None:
        return
    earlier = _paths(work)
    new = checkpoints.write(training.state(), work.checkpoint, _name(work))
    system, path = fsspec.core.url_to_fs(new.uri)
    with reaching(work.checkpoint):
        for each in earlier:
            if PurePosixPath(each).name != PurePosixPath(path).name:
                system.rm_file(each)


def find(work: Work) -> Checkpoint | None:
    """The checkpoint that an interrupted run of `work` left, or None. Raises Unreachable if that cannot be known."""
    for path in _paths(work):
        system, _ = fsspec.core.url_to_fs(work.checkpoint)
        try:
            sha256 = hashlib.sha256(untrusted.content(system.unstrip_protocol(path))).hexdigest()
        except (OSError, ValueError):  # another process has removed it, or it is not a regular file
            continue
        if PurePosixPath(path).name == f"{_name(work)}-{sha256[:16]}.pt":
            return Checkpoint(system.unstrip_protocol(path), sha256)
    return None


def clear(work: Work) -> None:
    """Remove the checkpoints of interrupted runs of `work`, which has ended. Raises Unreachable if it cannot."""
    for path in _paths(work):
        with reaching(str(work.checkpoint)):
            system, _ = fsspec.core.url_to_fs(work.checkpoint)
            system.rm_file(path)


def _paths(work: Work) -> list[str]:
    if work.checkpoint is None:
        return []
    with reaching(work.checkpoint):
        system, folder = fsspec.core.url_to_fs(work.checkpoint)
        return sorted(system.glob(f"{folder.rstrip('/')}/{_name(work)}-*.pt"))


def _name(work: Work) -> str:
    what = {name: value for name, value in asdict(work).items() if name not in PLACE}
    return "partial-" + hashlib.sha256(json.dumps(what, sort_keys=True, default=str).encode()).hexdigest()[:32]
