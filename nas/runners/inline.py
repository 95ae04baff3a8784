"""Units run in this process, one at a time: for small searches, debugging and replays; needs no Ray."""

from __future__ import annotations

import signal
import threading
from collections import deque
from dataclasses import dataclass
from types import FrameType

from nas.runners.contract import Run, Runner, guarded
from nas.runners.registry import runner
from nas.work import Outcome, Progress, Work

PATIENCE_SECONDS = 5  # for a unit that was asked to stop and has not come to its next report


class InlineRunner:
    """Runs a unit when it is waited for. `run` is replaceable, so that a search can be driven over a recorded table."""

    workers = capacity = 1

    def __init__(self, run: Run | None = None):
        self._run = run
        self._queue: deque[Work] = deque()
        self._progress: dict[tuple[int, int], Progress] = {}
        self._busy = self._stopping = self._alarmed = False

    def submit(self, work: Work) -> None:
        self._queue.append(work)

    def wait(self, timeout: float) -> list[Outcome]:
        if not self._queue:
            return []
        work = self._queue[0]
        self._busy = True
        try:
            outcome = guarded(self._run, work, lambda progress: self._heard(work, progress))
        finally:
            self._busy = False
            self._progress.clear()
            self._be_patient()
        self._queue.popleft()
        return [outcome]

    def _heard(self, work: Work, progress: Progress) -> None:
        self._progress[work.trial, work.rung] = progress
        if self._stopping:
            self._be_patient()  # it may take its time to save itself
            raise KeyboardInterrupt

    def progress(self) -> dict[tuple[int, int], Progress]:
        return dict(self._progress)

    def stop_soon(self) -> None:
        """The running unit saves itself at its next report; one that does not report is broken off where it stands."""
        self._stopping = True
        if self._busy and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGALRM, self._break_off)
            signal.alarm(PATIENCE_SECONDS)
            self._alarmed = True

    def _be_patient(self) -> None:
        if self._alarmed:
            signal.alarm(0)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            self._alarmed = False

    def _break_off(self, number: int, frame: FrameType | None) -> None:
        if self._busy:
            raise KeyboardInterrupt

    def interrupt(self, seconds: float) -> list[Outcome]:
        self._queue.clear()
        return []

    def close(self) -> None:
        self._queue.clear()


@runner("inline")
@dataclass(frozen=True)
class InlineOptions:
    """None: units run in this process, one at a time."""

    def start(self) -> Runner:
        """A runner in this process."""
        return InlineRunner()
