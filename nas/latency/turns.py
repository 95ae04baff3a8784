"""Times something in turns with the gauge, which runs before and after it.

A long call has moments of several speeds, so one run of the gauge says too little about it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

from tuner.measure.garbage import collector_off
from tuner.measure.measure import Call, Clock

T = TypeVar("T")


def in_turns(
    once: Callable[[], T],
    gauge: Call,
    clock: Clock,
    *,
    prepare: Call,
    warmup: int,
    rounds: int,
    deadline: float = math.inf,
) -> list[tuple[T, float]]:
    """What each round of `once` returned, and the milliseconds of the gauge around it: the mean of before and after.

    prepare: runs right before each round, untimed. warmup: rounds that do not count. No round starts after `deadline`
    (seconds of the clock), but one always counts.
    """
    found: list[tuple[T, float]] = []
    with collector_off():
        for number in range(warmup + rounds):
            if found and clock.now() > deadline:
                break
            before = _gauged(gauge, clock)
            prepare()
            each = once()
            around = (before + _gauged(gauge, clock)) / 2
            if number >= warmup or clock.now() >= deadline:
                found.append((each, around))
    return found


def _gauged(gauge: Call, clock: Clock) -> float:
    gauge()  # so that its time does not depend on what the caches hold
    return clock.time(gauge)
