"""The contract of a runner: units of work go in, outcomes come out, in any order."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Mapping
from typing import Protocol

from nas.errors import DiskFull, NasError
from nas.work import Failure, FailureKind, Outcome, Progress, Work
from searchspace.language.collecting import collected_later

LATE_SECONDS = 3.0  # how long a unit beyond its time limit may take to notice it, before the runner ends it
MOST_TEXT = 2**20  # characters of the message of a failure
Heard = Callable[[Progress], None]
Started = Callable[[], None]  # the clock of a unit's time limit starts, or starts again
Run = Callable[..., Outcome]  # run(work, progress=Heard); by default `nas.training.unit.run`


class Runner(Protocol):
    """Runs units: `workers` at once. Up to `capacity` units may be submitted, so that no worker waits for the next.

    isolates: whether units run in processes of their own, so that none can end the process of the search.
    """

    workers: int
    capacity: int
    isolates: bool

    def submit(self, work: Work) -> None:
        """Take a unit. It runs as soon as a worker is free."""

    def wait(self, timeout: float) -> list[Outcome]:
        """The outcomes that are ready: at once if there are any, else after at most `timeout` seconds.

        Raises NasError for an error that is not the fault of a unit, such as a device that does not exist.
        """

    def progress(self) -> Mapping[tuple[int, int], Progress]:
        """The progress of running units, by (trial, rung), as far as it is known. Several threads may call it."""

    def stop_soon(self) -> None:
        """Called from a signal handler: a unit in this process should save its state at its next step."""

    def interrupt(self, seconds: float) -> list[Outcome]:
        """Stop the running units, which save their state within `seconds`. Returns the outcomes that were ready."""

    def close(self) -> None:
        """Free all resources; units that still run are lost."""


def guarded(run: Run | None, work: Work, heard: Heard, started: Started = lambda: None) -> Outcome:
    """Run a unit. An exception is a failure of the unit, whatever its type.

    started: called when the clock of its time limit starts, for a runner that ends a unit which does not notice it.

    A full disk is a failure that does not count. Only another NasError, which the user has to fix, and
    KeyboardInterrupt are raised.
    """
    began = time.monotonic()
    try:
        if run is None:
            return _train(work, heard, started)
        started()
        return run(work, progress=heard)
    except DiskFull as error:
        failure = Failure(FailureKind.DISK_FULL, str(error))
    except NasError:
        raise
    except KeyboardInterrupt:
        raise
    except MemoryError as error:
        failure = Failure(FailureKind.OUT_OF_MEMORY, str(error) or "no memory is left")
    except BaseException:  # SystemExit, GeneratorExit and the like, which would end the search otherwise
        failure = Failure(FailureKind.TASK_ERROR, traceback.format_exc().rstrip()[-MOST_TEXT:])
    return Outcome(trial=work.trial, rung=work.rung, kind=work.kind, seconds=time.monotonic() - began, failure=failure)


def too_slow(work: Work, seconds: float) -> Outcome:
    """The outcome of a unit that the runner ended after `seconds`, because it did not notice its time limit."""
    text = (
        f"The limit of {work.seconds:g} seconds was over for more than {LATE_SECONDS:g} seconds. The unit did not "
        "notice it, as in a long call outside Python, so its process was ended."
    )
    failure = Failure(FailureKind.TOO_SLOW, text)
    return Outcome(trial=work.trial, rung=work.rung, kind=work.kind, seconds=seconds, failure=failure)


def _train(work: Work, progress: Heard, started: Started) -> Outcome:
    with collected_later():
        from nas.training.unit import run  # torch is imported when a unit runs, not when a search is planned

    return run(work, progress, started)


class LaterRunner:
    """Starts a runner with the first unit. Until then it is one worker that has nothing to do.

    `isolates` is true until then: if it were not, a unit whose process was lost would be given up sooner.
    """

    workers = capacity = 1
    isolates = True

    def __init__(self, start: Callable[[], Runner]) -> None:
        """start: makes the runner. `submit` raises what it raises."""
        self._start = start
        self._started: Runner | None = None

    def submit(self, work: Work) -> None:
        if self._started is None:
            self._started = self._start()
            self.workers, self.capacity = self._started.workers, self._started.capacity
            self.isolates = self._started.isolates
        self._started.submit(work)

    def wait(self, timeout: float) -> list[Outcome]:
        return self._started.wait(timeout) if self._started else []

    def progress(self) -> Mapping[tuple[int, int], Progress]:
        return self._started.progress() if self._started else {}

    def stop_soon(self) -> None:
        if self._started:
            self._started.stop_soon()

    def interrupt(self, seconds: float) -> list[Outcome]:
        return self._started.interrupt(seconds) if self._started else []

    def close(self) -> None:
        if self._started:
            self._started.close()
