"""A clock for a busy machine: it measures the CPU time of this process, without waiting times."""

from __future__ import annotations

import time

from tuner.measure.measure import Call


class ProcessTime:
    """The CPU time of this process and all its threads, instead of wall-clock time; see
    `tuner.measure.measure.Clock`.
    """

    def now(self) -> float:
        return time.monotonic()

    def time(self, call: Call) -> float:
        start = time.process_time_ns()
        call()
        return (time.process_time_ns() - start) / 1e6
