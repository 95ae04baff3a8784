"""A fixed computation whose time says how fast the machine is at the moment.

It runs next to everything that is timed, and each sample is divided by the time of the gauge beside it. So a latency
depends less on the clock frequency and on what else runs on the processor. The gauge is a mixture, because a busy
machine slows down the launching of operators (by up to 1.9), rowwise operators (1.6) and large matrix products (1.3) by
different factors. No mixture is right for every model, so only the samples of quiet moments count.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence

import torch
from torch.nn import functional as F

LAUNCHES, ROWWISE, PRODUCTS = 60, 8, 1  # of each kind: a fifth, a fifth and three fifths of 1.3 milliseconds on a CPU
COUNTS = 1 / 3  # the share of the samples that counts


def gauge(device: torch.device) -> Callable[[], object]:
    """A fixed computation similar to a small model: small operators, rowwise operators, matrix products.

    Run it once right before it is timed, so that its time does not depend on what the caches held.
    """
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


def as_quiet(samples: Sequence[float], gauged: Sequence[float], quiet: float | None) -> list[float]:
    """The samples as the quiet machine would have taken them; gauged: milliseconds of the gauge next to each.

    quiet: milliseconds of the gauge on the quiet machine; None if unknown: then nothing changes.
    """
    if quiet is None:
        return list(samples)
    return [each * quiet / same for each, same in zip(samples, gauged, strict=True)]


def quietest(times: Sequence[float]) -> list[int]:
    """The places of the shortest third of some times, at least of one, in order."""
    shortest = sorted(range(len(times)), key=times.__getitem__)
    return sorted(shortest[: math.ceil(COUNTS * len(times))])


def in_quiet(times: Sequence[float]) -> float:
    """The median of the shortest third."""
    return statistics.median(times[each] for each in quietest(times))
