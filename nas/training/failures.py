"""From an exception in a unit to a typed failure, with the text that helps the person who reads it."""

from __future__ import annotations

import traceback
from enum import Enum
from pathlib import Path
from types import FrameType, TracebackType

import torch

import kernels
import searchspace
from nas.errors import NasError
from nas.training.loop import BadLoss, NotFinite, TooSlow
from nas.work import Failure, FailureKind

OWN_PACKAGES = tuple(str(Path(package.__file__ or "").parent) + "/" for package in (searchspace, kernels))
OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "not enough memory", "CUBLAS_STATUS_ALLOC_FAILED")


class Phase(Enum):
    """What a unit was doing."""

    TASK = "preparing the task"
    BUILD = "building the model"
    TRAIN = "training"


def failure(error: Exception, phase: Phase, task_file: str) -> Failure:
    """The failure that `error` means; `task_file` is where the task is written."""
    if _out_of_memory(error):
        return Failure(FailureKind.OUT_OF_MEMORY, f"While {phase.value}: {error or 'no memory is left'}")
    if isinstance(error, NotFinite):
        return Failure(FailureKind.NOT_FINITE, str(error))
    if isinstance(error, TooSlow):
        return Failure(FailureKind.TOO_SLOW, str(error))
    if phase is Phase.TASK and isinstance(error, NasError):
        return Failure(FailureKind.TASK_ERROR, str(error))
    if phase is Phase.BUILD and isinstance(error, ValueError | NasError):
        return Failure(FailureKind.BUILD_ERROR, str(error))
    kind = FailureKind.TASK_ERROR if _of_the_task(error, phase, task_file) else FailureKind.BUILD_ERROR
    return Failure(kind, _trimmed(error, task_file))


def _out_of_memory(error: Exception) -> bool:
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in OUT_OF_MEMORY)


def _of_the_task(error: Exception, phase: Phase, task_file: str) -> bool:
    """Whether the task is to blame rather than a block: in training, whoever of the two stands nearest to the error."""
    if phase is not Phase.TRAIN or isinstance(error, BadLoss | SyntaxError):
        return phase is not Phase.BUILD
    for frame, _ in reversed(list(traceback.walk_tb(error.__traceback__))):
        if frame.f_code.co_filename == task_file:
            return True
        if frame.f_code.co_filename.startswith(OWN_PACKAGES):
            return False
    return False


def _trimmed(error: Exception, task_file: str) -> str:
    """The traceback from the task's first frame on; one that never enters the task is given whole."""
    start: TracebackType | None = error.__traceback__
    while start is not None and not _stands_in(start.tb_frame, task_file):
        start = start.tb_next
    lines = traceback.format_exception(type(error), error, start or error.__traceback__, chain=False)
    return "".join(lines).rstrip()


def _stands_in(frame: FrameType, file: str) -> bool:
    return frame.f_code.co_filename == file
