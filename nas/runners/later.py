"""A runner that starts with its first unit. A search that only shows its result has none, and needs no cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from nas.runners.contract import Runner
from nas.work import Outcome, Progress, Work


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
