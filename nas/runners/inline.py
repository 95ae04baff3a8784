"""Units run in this process, one at a time: for small searches, debugging and replays; needs no Ray."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from nas.work import Outcome, Progress, Work

Run = Callable[..., Outcome]


class InlineRunner:
    """Runs a unit when it is waited for. `run` is replaceable, so that a search can be driven over a recorded table."""

    workers = capacity = 1

    def __init__(self, run: Run | None = None):
        self._run = run or _train
        self._queue: deque[Work] = deque()
        self._progress: dict[tuple[int, int], Progress] = {}
        self._stopping = False

    def submit(self, work: Work) -> None:
        self._queue.append(work)

    def wait(self, timeout: float) -> list[Outcome]:
        if not self._queue:
            return []
        work = self._queue[0]
        outcome = self._run(work, progress=lambda progress: self._heard(work, progress))
        self._queue.popleft()
        self._progress.pop((work.trial, work.rung), None)
        return [outcome]

    def _heard(self, work: Work, progress: Progress) -> None:
        self._progress[work.trial, work.rung] = progress
        if self._stopping:
            raise KeyboardInterrupt

    def progress(self) -> dict[tuple[int, int], Progress]:
        return dict(self._progress)

    def stop_soon(self) -> None:
        """Called from a signal handler: the running unit saves itself at its next step."""
        self._stopping = True

    def interrupt(self, seconds: float) -> list[Outcome]:
        self._queue.clear()
        return []

    def close(self) -> None:
        self._queue.clear()


def _train(work: Work, progress: Callable[[Progress], None]) -> Outcome:
    from nas.training.unit import run  # torch is imported when a unit runs, not when a search is planned

    return run(work, progress=progress)
