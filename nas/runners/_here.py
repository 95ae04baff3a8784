"""Units in the process of the search, one at a time: for searches that take seconds, and for debugging."""

from __future__ import annotations

import signal
import threading
from collections import deque
from types import FrameType

from nas.runners.contract import Run, guarded
from nas.work import Outcome, Progress, Work

PATIENCE_SECONDS = 5  # to wait for the next report of a unit that was asked to stop


class InlineRunner:
    """Runs a unit while `wait` is called. `run` can be replaced, so that a search can run on recorded results."""

    workers = capacity = 1
    isolates = False

    def __init__(self, run: Run | None = None):
        self._run = run
        self._queue: deque[Work] = deque()
        self._progress: dict[tuple[int, int], Progress] = {}
        self._busy = self._stopping = self._alarmed = False

    def submit(self, work: Work) -> None:
        self._queue.append(work)

    def wait(self, timeout: float) -> list[Outcome]:
        """Run the next unit. Raises KeyboardInterrupt if it was interrupted."""
        if not self._queue:
            return []
        work = self._queue[0]
        self._busy = True
        try:
            outcome = guarded(self._run, work, lambda progress: self._heard(work, progress), self._started)
            if self._stopping and outcome.failure is not None:
                raise KeyboardInterrupt  # perhaps its cause, which the task turned into another exception
        finally:
            self._busy = False
            self._progress.clear()
            self._be_patient()
        self._queue.popleft()
        return [outcome]

    def _heard(self, work: Work, progress: Progress) -> None:
        self._progress[work.trial, work.rung] = progress
        if self._stopping:
            self._be_patient()  # saving may take as long as it needs
            raise KeyboardInterrupt

    def _started(self) -> None:
        """Nothing to do: in this process nothing can end a unit that does not notice its time limit."""

    def progress(self) -> dict[tuple[int, int], Progress]:
        return dict(self._progress)

    def stop_soon(self) -> None:
        """The running unit saves its state at its next report. A unit that does not report is interrupted."""
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
