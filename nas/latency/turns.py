"""Times something in turns with the gauge, which runs before and after it.

A long call has moments of several speeds, so one run of the gauge says too little about it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

from nas.latency.gauge import Gauge
from tuner.measure.garbage import collector_off
from tuner.measure.measure import Call, Clock

T = TypeVar("T")
STILL = 10  # times as long as the other: no load slows the gauge as much, so the process stood still within it


def in_turns(
    once: Callable[[], T],
    gauge: Gauge,
    clock: Clock,
    *,
    prepare: Call,
    warmup: int,
    rounds: int,
    deadline: float = math.inf,
) -> list[tuple[T, float]]:
    """What each round of `once` returned, and the milliseconds of the gauge around it (`mean`).

    prepare: runs right before each round, untimed. warmup: rounds that do not count. No round starts after `deadline`
    (seconds of the clock), but one always counts.
    """

    def turn() -> tuple[T, float]:
        before = _gauged(gauge, clock)
        prepare()
        each = once()
        return each, mean(before, _gauged(gauge, clock))

    with collector_off():
        for _ in range(warmup):  # may compile, in processes that shall not be kept on one core
            last = turn()
            if clock.now() >= deadline:
                return [last]
        with gauge.still():
            found = [turn()]
            while len(found) < rounds and clock.now() <= deadline:
                found.append(turn())
    return found


def mean(before: float, after: float) -> float:
    """The mean of two times of the gauge; the shorter one if the process stood still within the other."""
    shorter, longer = sorted((before, after))
    return shorter if longer > STILL * shorter else (before + after) / 2


def _gauged(gauge: Gauge, clock: Clock) -> float:
    gauge.call()  # so that its time does not depend on what the caches hold
    return clock.time(gauge.call)
