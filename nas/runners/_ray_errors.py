"""From an error of Ray to the failure of a unit: the unit's own, a lost worker, or a failure of Ray itself."""

from __future__ import annotations

import re
from dataclasses import dataclass

import ray

from nas.errors import NasError
from nas.work import Failure, FailureKind, Work

LONGEST = 2000  # characters of a text of Ray; some of its messages end with a page of statistics
# Ray lists the processes of the node with their command lines, which may be other users' and hold their secrets.
_PROCESSES = re.compile(r"Top \d+ memory users:.*?(?=^Refer to|\Z)", re.DOTALL | re.MULTILINE)
_PROCESS = re.compile(r"^(?:Top \d+ memory users: )?\d+\t([\d.]+)\t(.*)$", re.MULTILINE)
_UNIT = re.compile(r"ray::((?:trial|final) \d+) rung (\d+) of (\S+)")
_MEMORY = re.compile(r"was ([\d.]+)GB used / ([\d.]+)GB")


def name(work: Work) -> str:
    """The name of a unit's task in Ray, which is also the title of its process."""
    return f"{work.name} rung {work.rung} of {work.study}"


def failure(error: ray.exceptions.RayError, work: Work) -> Failure:
    """The failure of the unit whose result cannot be had because of `error`. Raises the NasError that a unit raised."""
    if isinstance(error, ray.exceptions.OutOfMemoryError):
        return _memory(str(error), work)
    if isinstance(error, ray.exceptions.RayTaskError):
        if isinstance(error.cause, NasError):
            raise error.cause from None
        return Failure(FailureKind.TASK_ERROR, str(error))
    if isinstance(error, ray.exceptions.WorkerCrashedError):
        return Failure(FailureKind.WORKER_LOST, "The process that ran the unit was killed, told to end, or crashed.")
    return Failure(FailureKind.INFRASTRUCTURE, text(error))


def text(error: BaseException) -> str:
    """The type and the text of an error, without the command lines of other processes."""
    shown = _PROCESSES.sub("", str(error)).strip()
    return f"{type(error).__name__}: {shown[:LONGEST]}"


@dataclass(frozen=True)
class _Process:
    """A process in Ray's list of those that use the most memory. unit: what it runs; '' if it is not a unit."""

    gigabytes: float
    unit: str
    ours: bool


def _memory(message: str, work: Work) -> Failure:
    """A unit that Ray ended because the memory of its node was full.

    Ray also ends units that use little. So only the process that used the most memory is out of memory; any other one
    has lost its worker, and is tried again.
    """
    processes = [_process(size, title, work) for size, title in _PROCESS.findall(message)]
    own = next((each for each in processes if each.ours), None)
    most = max(processes, key=lambda each: each.gigabytes, default=None)
    node = _MEMORY.search(message)
    full = f" ({node[1]} of {node[2]} GB)" if node else ""
    used = f", which used {own.gigabytes:g} GB" if own else ""
    told = f"The memory of the node was full{full}, so Ray ended this unit{used}"
    if most is None or most is own:
        return Failure(FailureKind.OUT_OF_MEMORY, f"{told}{', more than any other process there' if own else ''}.")
    culprit = most.unit or "a process that is not a unit"
    return Failure(FailureKind.WORKER_LOST, f"{told}. Most was used by {culprit}: {most.gigabytes:g} GB.")


def _process(gigabytes: str, title: str, work: Work) -> _Process:
    found = _UNIT.match(title)
    if found is None:
        return _Process(float(gigabytes), "", ours=False)
    trial, rung, study = found[1], int(found[2]), found[3].rstrip(".")  # Ray cuts long titles
    of_study = "" if work.study.startswith(study) else f" of study {study}"
    ours = not of_study and (trial, rung) == (work.name, work.rung)
    return _Process(float(gigabytes), f"{trial} rung {rung}{of_study}", ours)
