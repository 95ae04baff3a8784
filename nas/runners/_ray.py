"""The Ray runner: units run as stateless Ray tasks, on this machine or on a cluster.

A task takes a unit and returns an outcome; a worker keeps nothing else. So if a worker or a node dies, only the current
rung of its units is lost, and the search repeats it elsewhere. Ray's own retries are off: the store counts attempts.
If Ray itself fails, the search ends with an error, no attempt is counted, and the same command continues.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import FrameType
from typing import TYPE_CHECKING, Any

import ray

from nas.errors import NasError
from nas.runners import _ray_cluster, _ray_errors
from nas.runners._here import InlineRunner
from nas.runners._ray_cluster import RayCluster
from nas.runners.contract import LATE_SECONDS, Run, too_slow
from nas.work import Failure, FailureKind, Outcome, Progress, Work

if TYPE_CHECKING:
    from nas.runners.ray import RayOptions

HEAR_SECONDS = 1.0  # between two reports of a unit, and between two requests for them
SEVERAL = 3  # failures of Ray itself in a row that end the search
CANCELLED = Failure(FailureKind.WORKER_LOST, "The unit was cancelled, or raised KeyboardInterrupt by itself.")
BROKEN = (ray.exceptions.RayError, ConnectionError)  # what a call of Ray raises if its processes are gone


@dataclass
class _Submitted:
    """A unit that Ray has. number: counts all that were submitted. at: when, in seconds of the monotonic clock.

    began: when the clock of its time limit started, as the board said last.
    """

    work: Work
    number: int
    at: float = field(default_factory=time.monotonic)
    began: float = math.inf


class RayRunner:
    """Submits units to Ray. If the workers fill the cluster, one more unit waits in Ray, so that no worker is idle.

    A Ray that is connected already is used as it is, and stays connected when the runner is closed.
    """

    isolates = True

    def __init__(self, options: RayOptions, run: Run | None = None):
        self._run = run
        self._needs = {
            "num_cpus": options.cpus,
            "num_gpus": options.gpus,
            "memory": options.memory,
            "resources": options.resources or None,
        }
        self._cluster = RayCluster(options)
        self._running: dict[Any, _Submitted] = {}
        self._numbers = itertools.count()
        self._failures = 0  # of Ray since a unit last gave an outcome
        self._failed_at = 0.0
        self._heard: tuple[float, _Heard] = (0.0, _Heard())
        self._closing = threading.Lock()  # a thread may ask for the progress while another one closes the runner
        self._closed = self._interrupting = False
        try:
            most = self._cluster.units_at_once()
        except NasError:
            self._cluster.close()
            raise
        self.workers = options.workers or most
        self.capacity = self.workers + (self.workers == most)
        self._board: Any = ray.remote(num_cpus=0, max_restarts=-1)(_Board).remote()

    def submit(self, work: Work) -> None:
        """Raises NasError if Ray has failed, refuses the needs of the unit, or can never fulfil them."""
        submitted = _Submitted(work, next(self._numbers))
        needs = _ray_cluster.with_places(self._needs, work.probes)
        with self._working():
            if needs != self._needs:  # asking for the nodes may hang if Ray has just died, so only where it must be
                self._cluster.look_for(_ray_cluster.by_name(needs))
            with _ray_cluster.accepted(needs):
                task = _unit.options(**needs, name=_ray_errors.name(work))
                self._running[task.remote(work, self._board, self._run, submitted.number)] = submitted

    def wait(self, timeout: float) -> list[Outcome]:
        if not self._running:
            return []
        with self._working():
            ready, _ = ray.wait(list(self._running), num_returns=1, timeout=timeout)
            if ready:  # and all others that have ended meanwhile
                ready, _ = ray.wait(list(self._running), num_returns=len(self._running), timeout=0)
        return [outcome for reference in ready for outcome in self._ended(reference)] + self._overdue()

    @contextlib.contextmanager
    def _working(self) -> Iterator[None]:
        """Raise NasError if Ray fails inside the block."""
        try:
            yield
        except BROKEN as error:
            raise self._cluster.failed(_ray_errors.text(error)) from error

    def _ended(self, reference: Any) -> list[Outcome]:
        """The outcome of a task that has ended, if it has one. Raises NasError if a unit did, or if Ray has failed."""
        submitted = self._running.pop(reference)
        outcome = _outcome(reference, submitted.work)
        if outcome.failure == CANCELLED and self._interrupting:
            return []
        if outcome.failure is None or outcome.failure.kind is not FailureKind.INFRASTRUCTURE:
            self._failures = 0
        elif submitted.at >= self._failed_at:  # else it is lost by an earlier failure, such as that of its node
            self._failures, self._failed_at = self._failures + 1, time.monotonic()
            if self._failures == SEVERAL:
                raise self._cluster.failed(outcome.failure.message)
        return [outcome]

    def _overdue(self) -> list[Outcome]:
        """End the units that run longer than they may and do not notice it themselves, as in a long call of C."""
        if not any(each.work.seconds for each in self._running.values()):
            return []
        self._hear()
        outcomes = []
        for reference, each in list(self._running.items()):
            seconds = time.monotonic() - each.began
            if each.work.seconds and seconds > each.work.seconds + LATE_SECONDS:
                self._running.pop(reference)
                ray.cancel(reference, force=True)
                outcomes.append(too_slow(each.work, seconds))
        return outcomes

    def progress(self) -> dict[tuple[int, int], Progress]:
        """As the workers reported last; requested at most once a second. Nothing after `close`."""
        known = self._hear().progress
        running = {(each.work.trial, each.work.rung) for each in list(self._running.values())}  # a thread changes it
        return {key: progress for key, progress in known.items() if key in running}

    def _hear(self) -> _Heard:
        asked, known = self._heard
        with self._closing:
            if self._closed:
                return _Heard()
            if time.monotonic() - asked > HEAR_SECONDS:
                with contextlib.suppress(*BROKEN):
                    known = ray.get(self._board.read.remote(), timeout=1)
                    for each in list(self._running.values()):
                        if each.number in known.running:
                            each.began = time.monotonic() - known.running[each.number]
                self._heard = (time.monotonic(), known)
        return known

    def stop_soon(self) -> None:
        """Nothing to do: the search calls `interrupt` soon."""

    def interrupt(self, seconds: float) -> list[Outcome]:
        """Cancel the running units: Ray raises KeyboardInterrupt in the worker, and the unit saves its state."""
        self._interrupting = True
        outcomes: list[Outcome] = []
        end = time.monotonic() + seconds
        with contextlib.suppress(NasError, *BROKEN):  # the units are given back in any case
            for reference in self._running:
                ray.cancel(reference, force=False)
            while self._running and (left := end - time.monotonic()) > 0:
                outcomes += self.wait(left)
            for reference in self._running:
                ray.cancel(reference, force=True)
        self._running.clear()
        return outcomes

    def close(self) -> None:
        with self._closing:
            self._closed = True  # Ray would start again if it were asked for the progress
        if ray.is_initialized():
            with contextlib.suppress(*BROKEN):
                for reference in self._running:
                    ray.cancel(reference, force=True)
                ray.kill(self._board)
        self._running.clear()
        self._cluster.close()


def _outcome(reference: Any, work: Work) -> Outcome:
    """The outcome of a finished task. Raises the NasError that a unit raised."""
    try:
        return ray.get(reference)
    except ray.exceptions.TaskCancelledError:
        failure = CANCELLED
    except ray.exceptions.RayError as error:
        failure = _ray_errors.failure(error, work)
    return Outcome(trial=work.trial, rung=work.rung, kind=work.kind, seconds=0.0, failure=failure)


class _OnWorker(InlineRunner):
    """Runs one unit in a worker of Ray, and tells the board about it. number: of the submission."""

    def __init__(self, run: Run | None, board: Any, number: int) -> None:
        super().__init__(run)
        self._board, self._number, self._told = board, number, 0.0

    def _heard(self, work: Work, progress: Progress) -> None:
        if time.monotonic() - self._told > HEAR_SECONDS:
            self._told = time.monotonic()
            self._board.write.remote((work.trial, work.rung), progress)
        super()._heard(work, progress)

    def _started(self) -> None:
        self._board.start.remote(self._number)


@ray.remote(max_retries=0)
def _unit(work: Work, board: Any, run: Run | None, number: int) -> Outcome:
    """Run a unit. `ray.cancel` (SIGINT) and SIGTERM let it save its state at its next report."""
    unit, terminated = _OnWorker(run, board, number), False

    def asked(number: int, frame: FrameType | None) -> None:
        nonlocal terminated
        terminated |= number == signal.SIGTERM
        unit.stop_soon()

    before = {each: signal.signal(each, asked) for each in (signal.SIGINT, signal.SIGTERM)}
    unit.submit(work)
    try:
        return unit.wait(0)[0]
    except KeyboardInterrupt:
        if terminated:
            os._exit(1)  # Ray tells the search why, as far as it knows: the memory monitor, the end of the node, ...
        raise
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


@dataclass
class _Heard:
    """What the workers have reported. running: for how many seconds the units run, by the number of the submission."""

    progress: dict[tuple[int, int], Progress] = field(default_factory=dict)
    running: dict[int, float] = field(default_factory=dict)


class _Board:
    """An actor that collects what running units report: that they have started, and how far they are."""

    def __init__(self) -> None:
        self._progress: dict[tuple[int, int], Progress] = {}
        self._started: dict[int, float] = {}

    def write(self, key: tuple[int, int], progress: Progress) -> None:
        self._progress[key] = progress
        _shorten(self._progress)

    def start(self, number: int) -> None:
        """Note that the clock of a unit starts, or starts again."""
        self._started[number] = time.monotonic()
        _shorten(self._started)

    def read(self) -> _Heard:
        now = time.monotonic()
        return _Heard(self._progress, {number: now - began for number, began in self._started.items()})


def _shorten(known: dict[Any, Any]) -> None:
    """Forget the oldest entries."""
    while len(known) > 256:
        known.pop(next(iter(known)))
