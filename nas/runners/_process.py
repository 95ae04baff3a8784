"""The inline runner with a process: units run one at a time in a child process, which is used again for the next unit.

So a unit that crashes, hangs, exhausts the memory or closes the standard output ends this child, not the search. The
child starts with the first unit, because it imports torch. It is replaced when it has ended.

The child sends objects: a `Progress`, the `Outcome` of its unit, a NasError that the user has to correct, or one of
the texts below.
"""

from __future__ import annotations

import gc
import importlib
import math
import os
import signal
import time
from collections import deque
from collections.abc import Sequence
from multiprocessing.connection import Connection
from types import FrameType
from typing import Any

from nas.child import Child, Death, Died, Late
from nas.errors import NasError
from nas.runners._here import PATIENCE_SECONDS, InlineRunner
from nas.runners.contract import LATE_SECONDS, Run, too_slow
from nas.work import Failure, FailureKind, Outcome, Progress, Work

READY = "it can run units"
STARTED = "the time limit of the unit begins to count"
SAVING = "the unit was asked to stop, and saves its state"
SAVE_SECONDS = 600.0  # for a unit that is saving its state
SEE = "With `runner: {inline: {process: false}}` it runs in the process of the search, where a debugger sees it."
STOP = signal.SIGUSR1  # from the parent: save the state of the unit and end


class ProcessRunner:
    """Runs one unit at a time in a child process.

    run: what runs a unit, as the child can import it. modules: what the child imports first, because it registers what
    the units need.
    """

    workers = capacity = 1
    isolates = True

    def __init__(self, run: Run | None = None, modules: Sequence[str] = ()) -> None:
        self._run, self._modules = run, tuple(modules)
        self._queue: deque[Work] = deque()
        self._progress: dict[tuple[int, int], Progress] = {}
        self._child: Child | None = None
        self._is_ready = self._is_asked = False  # whether the child has said READY; whether it was asked to stop
        self._given: float | None = None  # when the child got the first unit of the queue
        self._began: float | None = None  # when the time limit of this unit began to count

    def submit(self, work: Work) -> None:
        self._queue.append(work)

    def wait(self, timeout: float) -> list[Outcome]:
        if not self._queue:
            return []
        work, end = self._queue[0], time.monotonic() + timeout
        child = self._give(work)
        while True:
            limit = self._began + work.seconds + LATE_SECONDS if self._began and work.seconds else math.inf
            try:
                if outcome := self._understand(child.receive(min(end, limit))):
                    return [self._done(outcome)]
            except Late:
                if time.monotonic() < limit:
                    return []
                seconds = self._seconds()
                self._end_child()
                return [self._done(too_slow(work, seconds))]
            except Died as error:
                return [] if self._is_asked else [self._done(self._lost(work, error.death))]

    def _give(self, work: Work) -> Child:
        """The child, which has the unit now."""
        if self._child is None:
            self._child = Child(run_units, self._run, self._modules)
            self._given, self._is_ready = None, False
        if self._given is None:
            self._given, self._began = time.monotonic(), None
            self._child.send(work)
        return self._child

    def _understand(self, said: Any) -> Outcome | None:
        """Note what the child says; the outcome if it is one. Raises the NasError that a unit raised."""
        work = self._queue[0]
        if said == READY:
            self._is_ready = True
        elif said == STARTED:
            self._began = time.monotonic()
        elif isinstance(said, Progress):
            self._progress = {(work.trial, work.rung): said}
        elif isinstance(said, NasError):
            raise said
        return said if isinstance(said, Outcome) else None

    def _done(self, outcome: Outcome) -> Outcome:
        self._queue.popleft()
        self._given, self._progress = None, {}
        return outcome

    def _seconds(self) -> float:
        """For how long the unit has run."""
        return 0.0 if self._given is None else time.monotonic() - (self._began or self._given)

    def _lost(self, work: Work, death: Death) -> Outcome:
        """The outcome of a unit whose process has ended. Raises NasError if it could not even start."""
        seconds, failure = self._seconds(), why_ended(death)
        self._end_child()
        if not self._is_ready and failure.kind is FailureKind.CRASHED:
            raise NasError(
                f"The process that runs the units cannot start: {failure.message} Its error is above. With `runner: "
                "{inline: {process: false}}` the units run in the process of the search."
            )
        return Outcome(trial=work.trial, rung=work.rung, kind=work.kind, seconds=seconds, failure=failure)

    def progress(self) -> dict[tuple[int, int], Progress]:
        return self._progress

    def stop_soon(self) -> None:
        """The running unit saves its state at its next report. A unit that does not report is interrupted."""
        if self._child is not None and not self._is_asked:
            self._is_asked = True
            self._child.signal(STOP)

    def interrupt(self, seconds: float) -> list[Outcome]:
        """Let the running unit save its state, and end its process."""
        outcomes: list[Outcome] = []
        if self._child is not None and self._given is not None:
            self.stop_soon()
            end = time.monotonic() + max(seconds, PATIENCE_SECONDS + 1)
            try:
                while not outcomes:
                    said = self._child.receive(end)
                    if said == SAVING:
                        end = time.monotonic() + SAVE_SECONDS
                    outcomes = [said] if isinstance(said, Outcome) else []
            except (Late, Died):
                pass
        self.close()
        return outcomes

    def close(self) -> None:
        self._queue.clear()
        if self._child is not None and self._given is None:
            self._child.close()
        self._end_child()

    def _end_child(self) -> None:
        if self._child is not None:
            self._child.kill()
        self._child, self._given, self._progress = None, None, {}


def why_ended(death: Death) -> Failure:
    """The failure of the unit that a process was running when it ended."""
    if death.lacked_memory:
        text = "The system ended the process that ran the unit, because the memory was full."
        return Failure(FailureKind.OUT_OF_MEMORY, text)
    if death.is_from_outside:
        return Failure(FailureKind.WORKER_LOST, f"The process that ran the unit was ended from outside ({death.how}).")
    last = f"{death.last}\n" if death.last else ""  # reports show the end of a message
    return Failure(FailureKind.CRASHED, f"{last}The process that ran the unit ended by itself, with {death.how}. {SEE}")


def run_units(parent: Connection, run: Run | None, modules: Sequence[str]) -> None:
    """The target of the child: run units until the parent closes the connection."""
    gc.disable()  # what is imported is no garbage, and lasts until the process ends
    for module in modules:
        importlib.import_module(module)  # it registers a task, an objective or a block of the user
    if run is None:
        import nas.training.unit  # noqa: F401  # takes seconds, which should not count as the unit's
    gc.freeze()
    gc.enable()
    units = _Units(parent, run)
    units.listen()
    units.say(READY)
    try:
        while True:
            units.submit(parent.recv())
            units.listen()  # a unit may have set handlers of its own
            try:
                units.say(units.wait(0)[0])
            except NasError as error:
                units.say(error)
    except KeyboardInterrupt:  # the parent knows whether it has asked for it
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)


class _Units(InlineRunner):
    """Runs units in this process, and tells the parent about them."""

    def __init__(self, parent: Connection, run: Run | None) -> None:
        super().__init__(run)
        self._parent, self._is_saying = parent, False

    def say(self, what: Any) -> None:
        """Send a message to the parent."""
        self._is_saying = True
        try:
            self._parent.send(what)
        finally:
            self._is_saying = False

    def listen(self) -> None:
        """Handle the signals that ask the running unit to stop. Ctrl-C is for the parent, which says when to stop."""
        for number in (STOP, signal.SIGTERM):
            signal.signal(number, self._asked)

    def _asked(self, number: int, frame: FrameType | None) -> None:
        """A signal handler: the running unit saves its state. Without one the process ends."""
        self.stop_soon()
        if not self._busy and not self._is_saying:
            raise KeyboardInterrupt

    def _heard(self, work: Work, progress: Progress) -> None:
        self.say(SAVING if self._stopping else progress)
        super()._heard(work, progress)

    def _started(self) -> None:
        if self._queue[0].seconds is not None:  # a message costs the search a tenth of a millisecond
            self.say(STARTED)

    def _break_off(self, number: int, frame: FrameType | None) -> None:
        if self._busy and not self._is_saying:  # the handler of a signal: the other message must not be cut in two
            self.say(SAVING)
        super()._break_off(number, frame)
