"""The inline runner with a process: units run one at a time in a child process, which is used again for the next unit.

So a unit that crashes, hangs, exhausts the memory or closes the standard output ends this child, not the search. The
child starts with the first unit, because it imports torch. It is replaced when it has ended.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from socket import socketpair
from typing import Any

from nas.errors import NasError
from nas.runners._child import STOP, Said
from nas.runners.contract import LATE_SECONDS, Run, too_slow
from nas.runners.inline import PATIENCE_SECONDS
from nas.work import Failure, FailureKind, Outcome, Progress, Work

START = (  # the child finds the same modules as this process
    "import sys; from multiprocessing.connection import Connection; c = Connection(int(sys.argv[1])); "
    "sys.path[:] = c.recv(); from nas.runners import _child; _child.main(c, int(sys.argv[2]))"
)
CLOSE_SECONDS = 3.0  # for a child without a unit to end
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
        self._child: _Child | None = None
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
                    if outcome := self._understand(*child.connection.recv()):
                        return [self._done(outcome)]
                elif time.monotonic() >= limit:
                    seconds = self._seconds()
                    self._end_child()
                    return [self._done(too_slow(work, seconds))]
                elif time.monotonic() >= end:
                    return []
        except (EOFError, OSError):  # the child has closed its end of the connection
            return [] if self._asked else [self._done(self._lost(work))]

    def _limit(self, work: Work) -> float:
        """When to end a unit that does not notice its time limit."""
        return self._began + work.seconds + LATE_SECONDS if self._began is not None and work.seconds else math.inf

    def _give(self, work: Work) -> _Child:
        """The child, which has the unit now."""
        if self._child is None:
            self._child, self._given = _Child(), None
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
        return content if said is Said.OUTCOME else None

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
                    said, content = self._child.connection.recv()
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


class _Child:
    """A child process and the connection to it.

    ready: it has said that it can run units. stopped: it has said that it ends because it received SIGTERM.
    """

    def __init__(self) -> None:
        ours, theirs = socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", START, str(theirs.fileno()), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=_errors(),  # the standard output is for the result of the search
                pass_fds=[theirs.fileno()],
                process_group=0,  # Ctrl-C is for the search, which asks its child to stop
            )
        self.connection = Connection(ours.detach())
        self._poll = select.poll()  # Connection.poll makes a new one for each call, which takes as long as the rest
        self._poll.register(self.connection.fileno(), select.POLLIN)
        self.ready = self.stopped = False
        self._killed_before = _killed_for_memory()

    def greet(self, hello: tuple[Run | None, tuple[str, ...]]) -> None:
        """Tell the process where modules are found, what runs a unit, and which modules to import."""
        self.connection.send(sys.path)
        self.connection.send(hello)

    def has_said(self, until: float) -> bool:
        """Whether there is a message, or the connection is closed; waits for it until this time."""
        left = until - time.monotonic()
        return bool(self._poll.poll(max(0, math.ceil(left * 1000))))

    def signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process.pid, number)

    def why_ended(self) -> Failure:
        """The failure of the unit that the process was running when it closed the connection."""
        try:
            code = self._process.wait(CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            return Failure(FailureKind.CRASHED, "The process that ran the unit closed its connection to the search.")
        if code == -signal.SIGKILL and _killed_for_memory() > self._killed_before:
            text = "The system ended the process that ran the unit, because the memory was full."
            return Failure(FailureKind.OUT_OF_MEMORY, text)
        ended = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        if self.stopped or code in (-signal.SIGKILL, -signal.SIGTERM):  # from outside
            how = "asked to end (SIGTERM)" if self.stopped else f"ended from outside ({ended})"
            return Failure(FailureKind.WORKER_LOST, f"The process that ran the unit was {how}.")
        return Failure(FailureKind.CRASHED, f"The process that ran the unit ended by itself, with {ended}.")

    def leave(self) -> None:
        """Let a process without a unit end by itself."""
        self.connection.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(CLOSE_SECONDS)

    def kill(self) -> None:
        """End the process and those that it has started."""
        self.connection.close()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def _errors() -> int:
    """Where the child's standard output goes: to the standard error, if it is open."""
    try:
        os.fstat(2)
    except OSError:
        return subprocess.DEVNULL
    return 2


def _killed_for_memory() -> int:
    """How many processes of this machine, or of this container, were killed because the memory was full."""
    for file in ("/sys/fs/cgroup/memory.events", "/proc/vmstat"):
        with contextlib.suppress(OSError, ValueError):
            for line in Path(file).read_text().splitlines():
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
    return 0
