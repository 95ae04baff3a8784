"""Milliseconds of a model on a device, with an interval that another process keeps within.

Where the weights happen to lie in memory makes more of a difference than the noise of one model's samples. So the
model is built afresh several times, each build is timed in turns with a gauge (a fixed small computation), and the
interval is that of the medians of the builds. When the gauge takes longer than it took on this device in quieter times,
the time is divided by as much, and the interval holds both.

On a CPU with one thread the clock is that thread's CPU time, in which waiting for another process does not count.
"""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch.nn import functional as F

from nas.latency import runs, served
from nas.latency.runs import Setting
from searchspace.registry import Configured
from tuner.device import resolve
from tuner.measure.interval import median_interval
from tuner.measure.measure import Clock, clock_of, measure

BUILDS = 6  # their range covers the median of all builds with 97 %
BETWEEN_PROCESSES = 0.01  # what two processes differ by beside the builds: where libraries lie, the clock's frequency
GAUGE = "gauge"
LOADED = 1.05  # times the quietest gauge, beyond which the load counts
MEASURED, PREDICTED = "measured", "predicted"


@dataclass(frozen=True, kw_only=True)
class PhaseLatency:
    """Milliseconds of one phase: the median and the interval around it, and the word for how they were found.

    prefill: the forward pass over a whole prompt. decode: one more token after it, from the state it left. train:
    forward and backward pass and an AdamW step. coverage: of the interval, below 0.95 when time ran out after a few
    samples. peak_bytes: the most memory the device held during one call, weights included; None where it was not
    measured, which is on a CPU. load: times that a fixed computation took as long as in quiet times; None where that is
    not known. served: which choice of the tuned kernels served which problem, and why.
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
        """As plain data."""
        return {**asdict(self), "served": list(self.served)}


class ThreadTime:
    """The CPU time of this thread, in the place of wall-clock time; see `tuner.measure.measure.Clock`."""

    def now(self) -> float:
        return time.monotonic()

    def time(self, call: Callable[[], object]) -> float:
        start = time.thread_time_ns()
        call()
        return (time.thread_time_ns() - start) / 1e6


def clock(setting: Setting) -> Clock:
    """CPU time where one thread does all the work, else the clock of the device."""
    return ThreadTime() if setting.device == "cpu" and setting.threads == 1 else clock_of(setting.device)


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

    repeats: samples, at least, over all builds. budget_seconds: builds and samples are as many as fit, at least one.
    quiet: milliseconds of the gauge on this device when it was quietest, None where that is not known. Raises
    ValueError for a phase that the model does not have and for a device that is not there.
    """
    where, watch = resolve(setting.device), clock(setting)
    deadline = math.inf if budget_seconds is None else time.monotonic() + budget_seconds
    builds = min(BUILDS, repeats)
    medians: list[float] = []  # of the builds, as they would be in quiet times
    loads: list[float] = []
    samples, peak = 0, None
    rows: served.Rows = ()
    with runs.on_threads(setting.threads), runs.seeded(where), little_garbage():
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
    """How many times as long everything took; less than `LOADED` is noise of the gauge."""
    return load if load > LOADED else 1.0


@contextmanager
def little_garbage() -> Iterator[None]:
    """What there is now is not looked through again: each measurement begins with a collection, which then is short."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def gauge(device: torch.device) -> Callable[[], object]:
    """A fixed computation like that of a small model: products, a softmax, rows.

    Run right before it is timed, so that it says nothing of what the caches held.
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
    """The most bytes that one call held, or None on a CPU, where nothing counts them."""
    if device.type != "cuda":
        return None
    run.prepare()
    torch.cuda.reset_peak_memory_stats(device)
    run.call()
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device)
