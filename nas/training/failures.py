"""Converts an exception in a unit to a typed failure with a helpful text."""

from __future__ import annotations

import traceback
from enum import Enum
from pathlib import Path
from types import ModuleType

import torch

import kernels
import nas.criteria
import searchspace
from nas.errors import NasError
from nas.training.loop import NotFinite, TooSlow, WrongReturn
from nas.work import Failure, FailureKind


def _folders(*packages: ModuleType) -> tuple[str, ...]:
    return tuple(str(Path(package.__file__ or "").parent) + "/" for package in packages)


OF_BLOCKS = _folders(searchspace, kernels)
OF_CRITERIA = _folders(nas.criteria)  # a criterion fails if the outputs or the targets of the task do not fit
OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "not enough memory", "CUBLAS_STATUS_ALLOC_FAILED")


class Phase(Enum):
    """The phase of a unit."""

    TASK = "preparing the task"
    BUILD = "building the model"
    TRAIN = "training"
    PROBE = "scoring the untrained model"


def failure(error: BaseException, phase: Phase, task_file: str) -> Failure:
    """The failure for `error`; `task_file` is the source file of the task."""
    if _out_of_memory(error):
        return Failure(FailureKind.OUT_OF_MEMORY, f"While {phase.value}: {str(error) or 'no memory is left'}")
    if isinstance(error, NotFinite):
        return Failure(FailureKind.NOT_FINITE, str(error))
    if isinstance(error, TooSlow):
        return Failure(FailureKind.TOO_SLOW, str(error))
    if _of_the_task(error, phase, task_file):
        plain = isinstance(error, NasError | WrongReturn)
        return Failure(FailureKind.TASK_ERROR, str(error) if plain else _trimmed(error, task_file))
    if phase is Phase.PROBE:
        return Failure(FailureKind.PROBE_ERROR, _trimmed(error, task_file))
    plain = phase is Phase.BUILD and isinstance(error, ValueError | NasError)
    return Failure(FailureKind.BUILD_ERROR, str(error) if plain else _trimmed(error, task_file))


def _out_of_memory(error: BaseException) -> bool:
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in OUT_OF_MEMORY)


def _of_the_task(error: BaseException, phase: Phase, task_file: str) -> bool:
    """Whether the task caused the error, not a block: the innermost frame of one of the two decides."""
    if phase is Phase.TASK or isinstance(error, WrongReturn):
        return True
    for frame, _ in reversed(list(traceback.walk_tb(error.__traceback__))):
        file = frame.f_code.co_filename
        if file == task_file or file.startswith(OF_CRITERIA):
            return True
        if file.startswith(OF_BLOCKS):
            return False
    return False


def _trimmed(error: BaseException, task_file: str) -> str:
    """The traceback from the task's first frame on, or all of it if it never enters the task.

    A syntax error in the task has no traceback; its message names the line.
    """
    if isinstance(error, SyntaxError):
        return "".join(traceback.format_exception_only(error)).rstrip()
    start = error.__traceback__
    while start is not None and start.tb_frame.f_code.co_filename != task_file:
        start = start.tb_next
    return "".join(traceback.format_exception(type(error), error, start or error.__traceback__, chain=False)).rstrip()
