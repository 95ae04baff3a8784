"""The inline runner with a process: units run one at a time in a child process, which is used again for the next unit.

So a unit that crashes, hangs, exhausts the memory or closes the standard output ends this child, not the search. The
child starts with the first unit, because it imports torch. It is replaced when it has ended.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from nas.errors import NasError
from nas.runners._child import STOP, Said
from nas.runners._child_process import Child
from nas.runners.contract import LATE_SECONDS, Run, too_slow
from nas.runners.inline import PATIENCE_SECONDS
from nas.work import FailureKind, Outcome, Progress, Work

SAVE_SECONDS = 600.0  # for a unit that is saving its state


class ProcessRunner:
    """Runs one unit at a time in a child process.

    run: what runs a unit, as the child can import it. modules: what the child imports first, because it registers what
    the units need.
    """

    workers = capacity = 1
    isolates = True

    def __init__(self, run: Run | None = None, modules: Sequence[str] = ()) -> None:
        self._hello = (run, tuple(modules))
        self._queue: deque[Work] = deque()
        self._progress: dict[tuple[int, int], Progress] = {}
        self._child: Child | None = None
        self._given: float | None = None  # when the child got the first unit of the queue
        self._began: float | None = None  # when the time limit of this unit began to count
        self._asked = False

    def submit(self, work: Work) -> None:
        self._queue.append(work)

    def wait(self, timeout: float) -> list[Outcome]:
        if not self._queue:
            return []
        work, end = self._queue[0], time.monotonic() + timeout
        try:
            child = self._give(work)
            while True:
                limit = (
                    math.inf if self._began is None or not work.seconds else self._began + work.seconds + LATE_SECONDS
                )
                if child.has_said(min(end, limit)):
                    if outcome := self._understand(*child.message()):
                        return [self._done(outcome)]
                elif time.monotonic() >= limit:
                    seconds = self._seconds()
                    self._end_child()
                    return [self._done(too_slow(work, seconds))]
                elif time.monotonic() >= end:
                    return []
        except (EOFError, OSError):  # the child has closed its end of the connection, or says what cannot be understood
            return [] if self._asked else [self._done(self._lost(work))]

    def _give(self, work: Work) -> Child:
        """The child, which has the unit now."""
        if self._child is None:
            self._child, self._given = Child(), None
            self._child.greet(self._hello)
        if self._given is None:
            self._given, self._began = time.monotonic(), None
            self._child.connection.send(work)
        return self._child

    def _understand(self, said: Said, content: Any) -> Outcome | None:
        """Note what the child says; the outcome if it is one. Raises the NasError that a unit raised."""
        assert self._child is not None
        work = self._queue[0]
        if said is Said.READY:
            self._child.ready = True
        elif said is Said.STARTED:
            self._began = time.monotonic()
        elif said is Said.PROGRESS:
            self._progress = {(work.trial, work.rung): content}
        elif said is Said.INTERRUPTED:
            self._child.stopped = True
        elif said is Said.ERROR:
            raise content
        is_its = said is Said.OUTCOME and (content.trial, content.rung, content.kind) == (
            work.trial,
            work.rung,
            work.kind,
        )
        return content if is_its else None

    def _done(self, outcome: Outcome) -> Outcome:
        self._queue.popleft()
        self._given, self._progress = None, {}
        return outcome

    def _seconds(self) -> float:
        """For how long the unit has run."""
        return 0.0 if self._given is None else time.monotonic() - (self._began or self._given)

    def _lost(self, work: Work) -> Outcome:
        """The outcome of a unit whose process has ended. Raises NasError if it could not even start."""
        child = self._child
        assert child is not None
        seconds = self._seconds()
        failure = child.why_ended()
        self._end_child()
        if not child.ready and failure.kind is FailureKind.CRASHED:
            raise NasError(
                f"The process that runs the units cannot start: {failure.message} Its error is above. With `runner: "
                "{inline: {process: false}}` the units run in the process of the search."
            )
        return Outcome(trial=work.trial, rung=work.rung, kind=work.kind, seconds=seconds, failure=failure)

    def progress(self) -> dict[tuple[int, int], Progress]:
        return self._progress

    def stop_soon(self) -> None:
        """The running unit saves its state at its next report. A unit that does not report is interrupted."""
        if self._child is not None and not self._asked:
            self._asked = True
            self._child.signal(STOP)

    def interrupt(self, seconds: float) -> list[Outcome]:
        """Let the running unit save its state, and end its process."""
        outcomes: list[Outcome] = []
        if self._child is not None and self._given is not None:
            self.stop_soon()
            end = time.monotonic() + max(seconds, PATIENCE_SECONDS + 1)
            with contextlib.suppress(EOFError, OSError):
                while not outcomes and self._child.has_said(end):
                    said, content = self._child.message()
                    if said is Said.SAVING:
                        end = time.monotonic() + SAVE_SECONDS
                    outcomes = [content] if said is Said.OUTCOME else []
        self.close()
        return outcomes

    def close(self) -> None:
        self._queue.clear()
        if self._child is not None and self._given is None:
            self._child.leave()
        self._end_child()

    def _end_child(self) -> None:
        if self._child is not None:
            self._child.kill()
        self._child, self._given, self._progress = None, None, {}
