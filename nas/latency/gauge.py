"""A fixed computation whose time says how fast the machine is at the moment.

It runs next to everything that is timed, and each sample is divided by the time of the gauge next to it. So a latency
depends less on the clock frequency and on what else runs on the processor. The gauge is a mixture, because a busy
machine slows down the launching of operators (by up to 1.9), rowwise operators (1.6) and large matrix products (1.3) by
different factors. No mixture is right for every model, so only the samples of quiet moments count.

On a GPU most models wait for the processor that launches their kernels, and another thread launches the backward pass.
There the gauge has a backward pass too, all threads stay on one core, and the median of all samples counts. See
benchmarks/README.md for the reason.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch.nn import functional as F

from tuner.measure.core import one_core

LAUNCHES, ROWWISE, PRODUCTS = 60, 8, 1  # of each kind: a fifth, a fifth and three fifths of 1.3 milliseconds on a CPU
BACKWARD = 30  # launches of a forward pass that has a backward pass, which is as many again: on a GPU half of the time


@dataclass(frozen=True)
class Gauge:
    """call: the fixed computation. Run it once right before it is timed, so that its time does not depend on what the
    caches held.

    share: of the samples that counts, those with the shortest times; of two the shorter one. quiet: the quantile of its
    own times that counts as the quiet machine. still: a context in which it and what it is timed with run.
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


def as_quiet(samples: Sequence[float], gauged: Sequence[float], quiet: float | None) -> list[float]:
    """The samples as the quiet machine would have taken them; gauged: milliseconds of the gauge next to each.

    quiet: milliseconds of the gauge on the quiet machine; None if unknown: then nothing changes.
    """
    if quiet is None:
        return list(samples)
    return [each * quiet / same for each, same in zip(samples, gauged, strict=True)]
