"""Measures the latency of a model, with an interval that holds for other processes too.

The place of the weights in memory changes the time by more than the noise of one model's samples. So the model is
built several times, each build is timed in turns with a gauge (a fixed small computation), and the interval is that of
the medians of the builds. If the gauge is slower than it once was on this device, the machine is loaded: the time is
divided by the same factor, and the interval covers both values.

On a CPU with one thread the clock is the CPU time of that thread, which does not include waiting for other processes.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch.nn import functional as F

from nas.latency import runs, served
from nas.latency.evidence import LOADED
from nas.latency.runs import Setting
from searchspace.registry import Configured
from tuner.device import resolve
from tuner.measure import garbage
from tuner.measure.interval import median_interval
from tuner.measure.measure import Clock, clock_of, measure

BUILDS = 6  # their range covers the median over all possible builds with 97 %
BETWEEN_PROCESSES = 0.01  # further difference between processes: places of libraries, clock frequency
GAUGE = "gauge"
MEASURED, PREDICTED = "measured", "predicted"


class CannotRun(ValueError):
    """The model does not run in this setting."""


@dataclass(frozen=True, kw_only=True)
class PhaseLatency:
    """The latency of one phase in milliseconds: the median, its interval, and whether it was measured or predicted.

    prefill: the forward pass over a whole prompt. decode: one more token, from the state after the prompt. train:
    forward and backward pass and an AdamW step. coverage: of the interval; below 0.95 if there was time for a few
    samples only. peak_bytes: the most memory that the device held during one call, including weights; None on a CPU,
    where it is not measured. load: the time of a fixed computation relative to its time on the quiet machine; None if
    unknown. served: which choice of the tuned kernels served which problem, and why.
    """

    phase: str
    milliseconds: float
    low: float
    high: float
    samples: int
    coverage: float
    peak_bytes: int | None
    kind: str = MEASURED
    load: float | None = None
    served: served.Rows = ()

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain data."""
        return {**asdict(self), "served": list(self.served)}


class ThreadTime:
    """A clock that measures the CPU time of this thread; see `tuner.measure.measure.Clock`."""

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


def latency(
    model: Configured,
    setting: Setting,
    *,
    warmup: int = 2,
    repeats: int = 20,
    budget_seconds: float | None = None,
    quiet: float | None = None,
) -> PhaseLatency:
    """Measure a model in a setting.

    repeats: the least number of samples over all builds. budget_seconds: limits builds and samples; there is at least
    one. quiet: milliseconds of the gauge on the quiet device, None if unknown. Raises ValueError for a phase that the
    model does not have, and for a device that this machine does not have.
    """
    where, watch = resolve(setting.device), clock(setting)
    deadline = math.inf if budget_seconds is None else time.monotonic() + budget_seconds
    builds = min(BUILDS, repeats)
    medians: list[float] = []  # of the builds, corrected for the load
    loads: list[float] = []
    samples, peak = 0, None
    rows: served.Rows = ()
    with runs.on_threads(setting.threads), runs.seeded(where), garbage.little_garbage():
        for number in range(builds):
            left = (deadline - time.monotonic()) / (builds - number)
            if medians and left <= 0:
                break
            _, run = runs.run(model, setting, where)
            if not medians:
                rows, peak = served.by(run), _peak(run, where)
            found = measure(
                {GAUGE: (same := gauge(where)), setting.phase: run.call},
                prepare={GAUGE: same, setting.phase: run.prepare},
                warmup=warmup,
                repeats=math.ceil(repeats / builds),
                budget_seconds=None if left == math.inf else max(left, 0.0),
                clock=watch,
            )
            loads.append(1.0 if quiet is None else found[GAUGE].median / quiet)
            medians.append(found[setting.phase].median / slowed(loads[-1]))
            samples += len(found[setting.phase].samples)
    interval = median_interval(medians)
    highest = max(median * slowed(load) for median, load in zip(medians, loads, strict=True))
    return PhaseLatency(
        phase=setting.phase,
        milliseconds=interval.median,
        low=interval.low * (1 - BETWEEN_PROCESSES),
        high=max(interval.high, highest) * (1 + BETWEEN_PROCESSES),
        samples=samples,
        coverage=interval.coverage,
        peak_bytes=peak,
        load=None if quiet is None else statistics.median(loads),
        served=rows,
    )


def slowed(load: float) -> float:
    """The factor by which a load slows everything; below `LOADED` it is noise of the gauge."""
    return load if load > LOADED else 1.0


def gauge(device: torch.device) -> Callable[[], object]:
    """A fixed computation similar to a small model: products, a softmax, rowwise operations.

    Run it once right before it is timed, so that its time does not depend on what the caches held.
    """
    x, w = torch.full((64, 128), 0.01, device=device), torch.full((128, 128), 0.01, device=device)

    @torch.no_grad()
    def call() -> torch.Tensor:
        y = x
        for _ in range(8):
            y = F.layer_norm(y + F.gelu(y @ w), (128,)).softmax(dim=-1)
        return y

    return call


def quiet_gauge(device: str, threads: int) -> float:
    """Milliseconds of the gauge now."""
    setting = Setting(phase="prefill", device=device, threads=threads)
    with runs.on_threads(threads):
        same = gauge(resolve(device))
        found = measure({GAUGE: same}, prepare={GAUGE: same}, warmup=5, repeats=30, clock=clock(setting))
    return found[GAUGE].median


def _peak(run: runs.Run, device: torch.device) -> int | None:
    """The most bytes that the device held during one call; None on a CPU, where nothing counts them."""
    if device.type != "cuda":
        return None
    run.prepare()
    torch.cuda.reset_peak_memory_stats(device)
    run.call()
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device)
