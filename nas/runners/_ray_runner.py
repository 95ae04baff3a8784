"""The Ray runner: units run as stateless Ray tasks, on this machine or on a cluster.

A task takes a unit and returns an outcome; a worker keeps nothing else. So if a worker or a node dies, only the current
rung of its units is lost, and the search repeats it elsewhere. Ray's own retries are off: the store counts attempts.
If Ray itself fails, no attempt is counted; the runner submits nothing until Ray works again.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import signal
import threading
import time
from dataclasses import dataclass, field
from types import FrameType
from typing import TYPE_CHECKING, Any

import ray

from nas.errors import NasError
from nas.runners import _ray_errors, _ray_needs
from nas.runners._ray_cluster import RayCluster
from nas.runners.contract import LATE_SECONDS, Run, interrupted_itself, too_slow
from nas.runners.inline import InlineRunner
from nas.work import Failure, FailureKind, Outcome, Progress, Work

if TYPE_CHECKING:
    from nas.runners.ray import RayOptions

HEAR_SECONDS = 1.0  # between two reports of a unit, and between two requests for them
SEVERAL = 3  # failures of Ray itself in a row, after which the runner stops submitting
BROKEN = (ray.exceptions.RayError, ConnectionError)  # what a call of Ray raises if its processes are gone


@dataclass
class _Submitted:
    """A unit that Ray has. number: counts all that were submitted. at: when, in seconds of the monotonic clock.

    began: when the clock of its time limit started, as the board said last; a board that was started again forgets it.
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
        self._options, self._run = options, run
        self._needs = {
            "num_cpus": options.cpus,
            "num_gpus": options.gpus,
            "memory": options.memory,
            "resources": options.resources or None,
        }
        self._cluster = RayCluster(options)
        self._running: dict[Any, _Submitted] = {}
        self._waiting: list[Work] = []  # submitted while Ray does not work
        self._numbers = itertools.count()
        self._failed = 0  # how often Ray failed since a unit last gave an outcome
        self._failed_at, self._why = 0.0, ""
        self._down = False
        self._heard: tuple[float, _Heard] = (0.0, _Heard())
        self._closing = threading.Lock()  # a thread may ask for the progress while another one closes the runner
        self._closed = self._interrupting = False
        try:
            self._attach()
        except NasError:
            self._cluster.close()
            raise

    def _attach(self) -> None:
        """Set up what the runner needs in the connected Ray. Raises NasError if no node can hold a unit."""
        most = self._cluster.units_at_once()
        self.workers = self._options.workers or most
        self.capacity = self.workers + (self.workers == most)
        self._board: Any = ray.remote(num_cpus=0, max_restarts=-1)(_Board).remote()

    def submit(self, work: Work) -> None:
        if not self._down:
            try:
                submitted = _Submitted(work, next(self._numbers))
                needs = _ray_needs.with_places(self._needs, work.probes)
                if needs != self._needs:  # asking for the nodes may hang if Ray has just died, so only where it must be
                    self._cluster.look_for(_ray_needs.by_name(needs))
                with _ray_needs.accepted(needs):
                    task = _unit.options(**needs, name=_ray_errors.name(work))
                    self._running[task.remote(work, self._board, self._run, submitted.number)] = submitted
                return
            except BROKEN as error:
                self._note_failure(time.monotonic(), _ray_errors.text(error))
        self._waiting.append(work)

    def wait(self, timeout: float) -> list[Outcome]:
        if self._down and not self._running:
            self._recover(timeout)
            return []
        if not self._down:
            self._submit_waiting()
        if not self._running:
            return []
        try:
            ready, _ = ray.wait(list(self._running), num_returns=1, timeout=timeout)
            if ready:  # and all others that have ended meanwhile
                ready, _ = ray.wait(list(self._running), num_returns=len(self._running), timeout=0)
        except BROKEN as error:
            return self._lost_all(error)
        return [outcome for reference in ready for outcome in self._ended(reference)] + self._overdue()

    def _ended(self, reference: Any) -> list[Outcome]:
        """The outcome of a task that has ended, if it has one. Raises the NasError that a unit raised."""
        submitted = self._running.pop(reference)
        outcome = _outcome(reference, submitted.work)
        if outcome is None:
            return [] if self._interrupting else [interrupted_itself(submitted.work)]
        if outcome.failure is not None and outcome.failure.kind is FailureKind.INFRASTRUCTURE:
            self._note_failure(submitted.at, outcome.failure.message)
        else:
            self._failed, self._down = 0, False
            self._cluster.works()
        return [outcome]

    def _note_failure(self, submitted_at: float, why: str) -> None:
        """Count a failure of Ray. The units that it had at an earlier failure are lost by that one."""
        if submitted_at >= self._failed_at:
            self._failed, self._failed_at, self._why = self._failed + 1, time.monotonic(), why
        self._down = self._failed >= SEVERAL

    def _lost_all(self, error: Exception) -> list[Outcome]:
        """Ray does not answer: all running units are lost."""
        lost, self._running = self._running, {}
        self._why, self._failed, self._down = _ray_errors.text(error), SEVERAL, True
        failure = Failure(FailureKind.INFRASTRUCTURE, self._why)
        return [_failed(each.work, failure) for each in lost.values()]

    def _recover(self, timeout: float) -> None:
        """Connect again and submit what waits, if it is time to. Raises NasError after several failed tries."""
        with self._closing:
            if not self._cluster.again(timeout, f"{self._why.rstrip('.')}."):
                return
            try:
                self._attach()
            except (NasError, *BROKEN) as error:
                self._why = str(error)
                return
            self._heard = (0.0, _Heard())
        self._failed, self._down = 0, False
        self._submit_waiting()

    def _submit_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for work in waiting:
            self.submit(work)

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
        if self._down:
            return _Heard()
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
        self._waiting.clear()
        for reference in self._running:
            ray.cancel(reference, force=False)
        outcomes, end = [], time.monotonic() + seconds
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
        self._waiting.clear()
        self._cluster.close()


def _outcome(reference: Any, work: Work) -> Outcome | None:
    """The outcome of a finished task; None if it was cancelled. Raises the NasError that a unit raised."""
    try:
        return ray.get(reference)
    except ray.exceptions.TaskCancelledError:
        return None
    except ray.exceptions.RayError as error:
        return _failed(work, _ray_errors.failure(error, work))


def _failed(work: Work, failure: Failure) -> Outcome:
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
