"""The contract of a runner: units of work go in, outcomes come out, in any order."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Mapping
from typing import Protocol

from nas.errors import NasError
from nas.work import Failure, FailureKind, Outcome, Progress, Work

Heard = Callable[[Progress], None]
Run = Callable[..., Outcome]  # run(work, progress=Heard); by default `nas.training.unit.run`


class Runner(Protocol):
    """`workers` units run at once; `capacity` may be submitted and not yet collected, so that no worker idles."""

    workers: int
    capacity: int

    def submit(self, work: Work) -> None: ...

    def wait(self, timeout: float) -> list[Outcome]:
        """The outcomes that have come in, at once if there are any, else after at most `timeout` seconds.

        Raises NasError for what no unit is to blame for, such as a full disk.
        """

    def progress(self) -> Mapping[tuple[int, int], Progress]:
        """How far the running units are, by (trial, rung), where it is known."""

    def stop_soon(self) -> None:
        """Called from a signal handler, so it only takes note: a unit in this process saves itself at its next step."""

    def interrupt(self, seconds: float) -> list[Outcome]:
        """Stop what runs: units save where they are, within `seconds`. Gives the outcomes that were ready."""

    def close(self) -> None: ...


def guarded(run: Run | None, work: Work, heard: Heard) -> Outcome:
    """Run a unit; whatever it raises is a failure of the unit, except NasError, which the user has to put right."""
    began = time.monotonic()
    try:
        return (run or _train)(work, progress=heard)
    except NasError:
        raise
    except MemoryError as error:
        failure = Failure(FailureKind.OUT_OF_MEMORY, str(error) or "no memory is left")
    except (Exception, SystemExit):  # a task's own sys.exit would end the search otherwise
        failure = Failure(FailureKind.TASK_ERROR, traceback.format_exc().rstrip())
    return Outcome(trial=work.trial, rung=work.rung, kind=work.kind, seconds=time.monotonic() - began, failure=failure)


def _train(work: Work, progress: Heard) -> Outcome:
    from nas.training.unit import run  # torch is imported when a unit runs, not when a search is planned

    return run(work, progress=progress)
