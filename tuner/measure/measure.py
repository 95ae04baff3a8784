"""Times several candidates against one another on a machine that is never quiet.

Candidates take turns, so that clock drift, heat and other processes affect all of them equally. Every round has a new
random order (B A C, C A B, ...), so that no candidate always runs after the same other one. The result is a median with
an interval that assumes nothing about the noise, and two candidates are compared by the ratios of samples from the same
round. Times are milliseconds.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol
from weakref import WeakKeyDictionary

import torch

from kernels.dispatch.device import resolve
from tuner.measure.garbage import collector_off
from tuner.measure.interval import Interval, median_interval

Call = Callable[[], object]

NANOSECOND = 1e-6  # in milliseconds; replaces a measured time of zero
FLUSH_BYTES = 256 * 2**20  # at least: more than the level-2 cache of most devices (126 MB on a B200)
SPINS = 2_000_000  # cycles of a GPU in a millisecond, at about 2 GHz
LONGEST_SPIN = 20.0  # milliseconds: a first call may compile for minutes
LEAST_ROUNDS = 7  # of a comparison that decides, however long they take: fewer cannot tell two apart with confidence
IDLE = 0.1  # seconds without work, after which a GPU may have lowered its frequency
RAMP = 0.05  # seconds of work that raise it again
ATTEMPTS = 3  # of one sample; a call that waits for the GPU itself, or is launched for long, can never be in advance


@dataclass(frozen=True)
class Timing:
    """Milliseconds of one call: the median, the interval around it, and the samples in the order they were taken."""

    median: float
    low: float
    high: float
    samples: tuple[float, ...]
    coverage: float = 0.95  # of the interval; lower if there are few samples


class Clock(Protocol):
    """Times one call, and tells the time."""

    def now(self) -> float:
        """Seconds since any fixed moment."""

    def time(self, call: Call) -> float:
        """Run `call` to its end and return the milliseconds that it took."""


class ProcessorClock:
    """Wall-clock time on the CPU."""

    def now(self) -> float:
        return time.monotonic()

    def time(self, call: Call) -> float:
        start = time.perf_counter_ns()
        call()
        return (time.perf_counter_ns() - start) / 1e6


class CudaClock:
    """Time on the GPU between two events, with a cold cache and without the time of launching.

    Before each call a buffer larger than the level-2 cache is overwritten. The GPU then spins for as long as the
    processor needs to launch everything, so that it never waits for the processor inside the call. If it did wait, the
    sample is taken again with a longer spin. Each call has its own spin, because calls that differ take turns. A GPU
    that was idle, for example while a kernel was compiled, lowers its frequency; so after a pause the call runs for a
    while before it is timed.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.buffer = torch.empty(flush_bytes(device), dtype=torch.int8, device=device)
        self.spin = 0.0  # milliseconds, of the last sample; a call that is new begins with it
        self.spins: WeakKeyDictionary[Call, float] = WeakKeyDictionary()  # a call may hold memory of the GPU
        self.last = -math.inf  # when the last sample ended, in seconds

    def now(self) -> float:
        return time.monotonic()

    def time(self, call: Call) -> float:
        if time.monotonic() - self.last > IDLE:
            self._raise_frequency(call)
        try:
            return self._time(call)
        finally:
            self.last = time.monotonic()

    def _raise_frequency(self, call: Call) -> None:
        until = time.monotonic() + RAMP
        with torch.cuda.device(self.device):
            while time.monotonic() < until:
                call()
                torch.cuda.synchronize(self.device)

    def _time(self, call: Call) -> float:
        with suppress(TypeError):  # an object without a hash, or of slots alone, begins with the last spin
            self.spin = self.spins.get(call, self.spin)
        for _ in range(ATTEMPTS):
            before = self.spin
            milliseconds, in_advance = self._once(call)
            if in_advance or before == self.spin == LONGEST_SPIN:
                break
        with suppress(TypeError):
            self.spins[call] = self.spin
        return milliseconds

    def _once(self, call: Call) -> tuple[float, bool]:
        """(milliseconds, whether everything was launched before the GPU began)."""
        with torch.cuda.device(self.device):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            self.buffer.zero_()
            torch.cuda._sleep(int(self.spin * SPINS))
            start.record()
            before = time.perf_counter()
            call()
            in_advance = not start.query()
            end.record()
            self.spin = min(1.5 * (time.perf_counter() - before) * 1e3, LONGEST_SPIN)
            end.synchronize()
        return start.elapsed_time(end), in_advance


def flush_bytes(device: torch.device) -> int:
    """The size of a buffer that evicts everything from the cache of a GPU: twice the size that the device reports."""
    reported = getattr(torch.cuda.get_device_properties(device), "L2_cache_size", 0)
    return max(FLUSH_BYTES, 2 * reported)


class CudaWallClock:
    """Wall-clock time of a call on a GPU from its launch to its end: how long a caller waits for the result."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def now(self) -> float:
        return time.monotonic()

    def time(self, call: Call) -> float:
        torch.cuda.synchronize(self.device)
        start = time.perf_counter_ns()
        call()
        torch.cuda.synchronize(self.device)
        return (time.perf_counter_ns() - start) / 1e6


def clock_of(device: str, *, launching: bool = False) -> Clock:
    """The clock for `device`; launching: on a GPU, include the time that the processor needs to launch a call.

    Kernels are compared without it, latencies of models are measured with it. Raises ValueError if this machine does
    not have the device.
    """
    found = resolve(device)
    if found.type == "cpu":
        return ProcessorClock()
    return CudaWallClock(found) if launching else CudaClock(found)


def measure(
    candidates: Mapping[str, Call],
    *,
    device: str = "cpu",
    warmup: int = 2,
    repeats: int = 20,
    least: int = 1,
    min_seconds: float = 0.0,
    budget_seconds: float | None = None,
    prepare: Mapping[str, Call] | None = None,
    clock: Clock | None = None,
) -> dict[str, Timing]:
    """Time every candidate, in turns, and return its timing under its name.

    candidates: calls without arguments, each doing the same amount of work every time. warmup: rounds whose times are
    discarded. repeats: timed rounds; there are more until `min_seconds` have been measured in total. budget_seconds: no
    round starts after this time, including warm-up, but `least` rounds are always timed. prepare: by a
    candidate's name, what to run before each of its calls, untimed. Raises ValueError for numbers out of range and a
    `prepare` without candidate. An exception of a candidate passes through, with its name as a note and as the
    attribute `candidate`.
    """
    prepare = prepare or {}
    _check(candidates, prepare, warmup, repeats)
    clock = clock or clock_of(device)
    samples: dict[str, list[float]] = {name: [] for name in candidates}
    order = random.Random(0)
    with collector_off():
        deadline = math.inf if budget_seconds is None else clock.now() + budget_seconds
        for _ in range(warmup):
            if clock.now() < deadline:
                _round(candidates, prepare, clock, order)
        rounds, measured = 0, 0.0
        while rounds < least or (clock.now() < deadline and (rounds < repeats or measured < min_seconds * 1e3)):
            for name, milliseconds in _round(candidates, prepare, clock, order).items():
                samples[name].append(milliseconds)
                measured += milliseconds
            rounds += 1
    return {name: timing(times) for name, times in samples.items()}


def timing(samples: Sequence[float]) -> Timing:
    """The timing of `samples` in milliseconds. Raises ValueError without samples."""
    interval = median_interval(samples)
    return Timing(interval.median, interval.low, interval.high, tuple(samples), interval.coverage)


def compare(a: Timing, b: Timing) -> Interval:
    """The time of `a` relative to that of `b`: the median of the paired ratios, below one if `a` is faster.

    Both must come from one call of `measure`, so that sample i of each was taken in round i. Raises ValueError if they
    have different numbers of samples.
    """
    if len(a.samples) != len(b.samples):
        counts = f"{len(a.samples)} and {len(b.samples)}"
        raise ValueError(f"Paired timings have as many samples each, but got {counts}: measure both in one call.")
    return median_interval([x / max(y, NANOSECOND) for x, y in zip(a.samples, b.samples, strict=True)])


def _check(candidates: Mapping[str, Call], prepare: Mapping[str, Call], warmup: int, repeats: int) -> None:
    if not candidates:
        raise ValueError("There is nothing to measure: candidates is empty.")
    if warmup < 0 or repeats < 1:
        raise ValueError(f"warmup must be at least 0 and repeats at least 1, but got {warmup} and {repeats}.")
    if unknown := sorted(prepare.keys() - candidates.keys()):
        raise ValueError(f"prepare names {unknown}, but the candidates are {sorted(candidates)}.")


def _round(
    candidates: Mapping[str, Call], prepare: Mapping[str, Call], clock: Clock, order: random.Random
) -> dict[str, float]:
    """Milliseconds of one call of each candidate."""
    times = {}
    for name, call in order.sample(list(candidates.items()), len(candidates)):
        try:
            if name in prepare:
                prepare[name]()
            times[name] = clock.time(call)
        except Exception as error:
            error.add_note(f"while timing {name!r}")
            error.candidate = name  # type: ignore[attr-defined]
            raise
    return times
