"""Times runs next to a gauge: a fixed computation whose time says how fast the machine is at the moment.

The gauge runs before and after each round of runs, and the times of the round are divided by it. So a latency depends
less on the clock frequency and on what else runs on the processor. The gauge is a mixture, because a busy machine slows
down the launching of operators (by up to 1.9), rowwise operators (1.6) and large matrix products (1.3) by different
factors. No mixture is right for every model, so only the samples of quiet moments count.

The place of the weights in memory changes the times by more than the noise. So what is timed is built several times,
and more often while the times are uncertain.

On a GPU most models wait for the processor that launches their kernels, and another thread launches the backward pass.
There the gauge has a backward pass too, all threads stay on one core, and the median of all samples counts.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional as F

from kernels.dispatch.device import resolve
from nas.latency.runs import Run, Setting, on_threads
from tuner.measure.core import one_core
from tuner.measure.garbage import collector_off
from tuner.measure.interval import Interval, median_interval
from tuner.measure.measure import Clock, Timing, clock_of, timing

LAUNCHES, ROWWISE, PRODUCTS = 60, 8, 1  # of each kind: a fifth, a fifth and three fifths of 1.3 milliseconds on a CPU
BACKWARD = 30  # launches of a forward pass that has a backward pass, which is as many again: on a GPU half of the time
GAUGE_SECONDS = 0.25
MOST = 3  # times as many builds while the interval around the median of the builds is wider than this to each side
WIDE = 0.02
STILL = 10  # times as long as another: no load slows the gauge as much, so the process stood still within it


@dataclass(frozen=True)
class Gauge:
    """call: the fixed computation. share: of the samples that counts, those with the shortest times; of two the shorter
    one. quiet: the quantile of its own times that counts as the quiet machine. still: a context in which it and what it
    is timed with run.
    """

    call: Callable[[], object]
    share: float = 1 / 3
    quiet: float = 0.1
    still: Callable[[], AbstractContextManager[object]] = nullcontext

    def quietest(self, times: Sequence[float]) -> list[int]:
        """The places of the times that count, at least of one, in order."""
        shortest = sorted(range(len(times)), key=times.__getitem__)
        return sorted(shortest[: 1 if len(times) == 2 else math.ceil(self.share * len(times))])

    def in_quiet(self, times: Sequence[float]) -> float:
        """The median of the times that count."""
        return statistics.median(times[each] for each in self.quietest(times))

    def of_builds(self, builds: Sequence[Sequence[float]]) -> Interval:
        """The median of the builds and its interval, from the times of each."""
        return median_interval([self.in_quiet(times) for times in builds])


def gauge(device: torch.device) -> Gauge:
    """The gauge of a device."""
    forward = _mixture(device)
    if device.type == "cpu":
        return Gauge(forward)
    backward = _backward(device)
    return Gauge(lambda: (forward(), backward()), share=1.0, quiet=0.5, still=one_core)


def _mixture(device: torch.device) -> Callable[[], torch.Tensor]:
    """Similar to a small model: small operators, rowwise operators, matrix products."""
    few = torch.full((8, 32), 0.01, device=device)
    rows, wide = torch.full((64, 128), 0.01, device=device), torch.full((144, 512), 0.01, device=device)
    square = torch.full((512, 512), 0.01, device=device)

    @torch.no_grad()
    def call() -> torch.Tensor:
        x, y, z = few, rows, wide
        for _ in range(LAUNCHES):
            x = (x + few) * 0.5
        for _ in range(ROWWISE):
            y = F.layer_norm(y + F.gelu(y), (128,)).softmax(dim=-1)
        for _ in range(PRODUCTS):
            z = z @ square
        return x.sum() + y.sum() + z.sum()

    return call


def _backward(device: torch.device) -> Callable[[], None]:
    """Small operators and their backward pass."""
    few = torch.full((8, 32), 0.01, device=device, requires_grad=True)

    @torch.enable_grad()
    def call() -> None:
        x = few
        for _ in range(BACKWARD):
            x = (x + few) * 0.5
        x.sum().backward()
        few.grad = None

    return call


class ThreadTime:
    """A clock that measures the CPU time of this thread, which does not include waiting for other processes."""

    def now(self) -> float:
        return time.monotonic()

    def time(self, call: Callable[[], object]) -> float:
        start = time.thread_time_ns()
        call()
        return (time.thread_time_ns() - start) / 1e6


def clock(setting: Setting) -> Clock:
    """CPU time if one thread does all the work, else wall-clock time."""
    if setting.device == "cpu" and setting.threads == 1:
        return ThreadTime()
    return clock_of(setting.device, launching=True)


def quiet_gauge(device: str, threads: int) -> float:
    """Milliseconds of the gauge in quiet moments of the next `GAUGE_SECONDS`."""
    watch = clock(Setting(phase="prefill", device=device, threads=threads))
    with on_threads(threads):
        made = gauge(resolve(device))
        for _ in range(5):
            made.call()
        with made.still():
            times = [watch.time(made.call)]
            while sum(times) < 1e3 * GAUGE_SECONDS:
                times.append(_gauged(made, watch))
    return sorted(times)[int(made.quiet * len(times))]


@dataclass(frozen=True)
class Round:
    """Milliseconds of each run, one after the other, and of the gauge around them."""

    times: tuple[float, ...]
    gauge: float

    def as_quiet(self, quiet: float | None) -> list[float]:
        """The times as the quiet machine would have taken them, on which the gauge takes `quiet`; None if unknown."""
        return list(self.times) if quiet is None else [each * quiet / self.gauge for each in self.times]


def timed(
    make: Callable[[], Sequence[Run]],
    clock: Clock,
    gauge: Gauge,
    quiet: float | None,
    *,
    builds: int,
    most: int,
    rounds: int,
    warmup: int = 1,
    warm: int = 0,
    seconds: float = math.inf,
) -> list[list[Round]]:
    """The rounds of each build: all forwards in order, then the backward passes in reverse order.

    make: builds the runs, always the same ones; `builds` times, and up to `most` times while the sums of the rounds are
    uncertain. quiet: see `Round.as_quiet`. warmup: rounds of each build that do not count. warm: untimed rounds right
    before each timed one. No round starts after `seconds`, but there is one, and one of another build if it took all
    the time: the process may have stood still.
    """
    found: list[list[Round]] = []
    deadline = clock.now() + seconds
    while len(found) < builds or (len(found) < most and _is_wide(found, gauge, quiet)):
        left = (deadline - clock.now()) / max(1, builds - len(found))
        if left <= 0 and sum(map(len, found)) > 1:
            break
        found.append(_built(make(), clock, gauge, rounds, warmup, warm, clock.now() + max(0.0, left)))
    return found


def _is_wide(found: Sequence[Sequence[Round]], gauge: Gauge, quiet: float | None) -> bool:
    """Whether the interval around the median sum of the builds is wide."""
    interval = gauge.of_builds([[sum(each.as_quiet(quiet)) for each in build] for build in found])
    return interval.high - interval.low > 2 * WIDE * interval.median


def _built(
    runs: Sequence[Run], clock: Clock, gauge: Gauge, rounds: int, warmup: int, warm: int, deadline: float
) -> list[Round]:
    """The rounds of one build; one counts in any case."""

    def turn() -> Round:
        before = _gauged(gauge, clock)
        for _ in range(warm):
            _run_all(runs, clock)
        times = _run_all(runs, clock)
        return Round(times, _mean(before, _gauged(gauge, clock)))

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


def _run_all(runs: Sequence[Run], clock: Clock) -> tuple[float, ...]:
    for run in runs:
        run.prepare()
    times = [clock.time(run.call) for run in runs]
    for place in reversed(range(len(runs))):
        if (back := runs[place].back) is not None:
            times[place] += clock.time(back)
    return tuple(times)


def _gauged(gauge: Gauge, clock: Clock) -> float:
    gauge.call()  # so that its time does not depend on what the caches hold
    return clock.time(gauge.call)


def _mean(before: float, after: float) -> float:
    """The mean of two times of the gauge; the shorter one if the process stood still within the other.

    A long call has moments of several speeds, so one run of the gauge says too little about it.
    """
    shorter, longer = sorted((before, after))
    return shorter if longer > STILL * shorter else (before + after) / 2


@dataclass(frozen=True)
class Times:
    """Milliseconds of a piece: of its first call in a round, and of the later ones (the same if there is one)."""

    first: Timing
    later: Timing


def by_key(keys: Sequence[Hashable], found: Sequence[Sequence[Round]], gauge: Gauge, quiet: float) -> dict[Any, Times]:
    """The times of each key, from the quietest rounds. keys: of the runs of a round; equal ones are copies."""
    rounds = [each.as_quiet(quiet) for build in found for each in build]
    samples = [*zip(*(rounds[each] for each in gauge.quietest([sum(each) for each in rounds])), strict=True)]
    places: dict[Hashable, list[int]] = {}
    for place, key in enumerate(keys):
        places.setdefault(key, []).append(place)
    times = {}
    for key, (first, *later) in places.items():
        together = zip(*(samples[place] for place in later or [first]), strict=True)
        times[key] = Times(timing(samples[first]), timing([statistics.fmean(each) for each in together]))
    return times
