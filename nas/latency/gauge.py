"""A fixed computation whose time says how fast the machine is at the moment.

It runs next to everything that is timed, and each sample is divided by the time of the gauge beside it. So a latency
depends less on the clock frequency and on what else runs on the processor. The gauge is a mixture: a busy machine slows
down the launching of operators, rowwise operators and matrix products by different factors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch.nn import functional as F

LAUNCHES, ROWWISE, PRODUCTS = 60, 3, 1  # of each kind: about half, a fifth and a third of half a millisecond on a CPU


def gauge(device: torch.device) -> Callable[[], object]:
    """A fixed computation similar to a small model: small operators, rowwise operators, matrix products.

    Run it once right before it is timed, so that its time does not depend on what the caches held.
    """
    few = torch.full((8, 32), 0.01, device=device)
    rows, square = torch.full((64, 128), 0.01, device=device), torch.full((208, 208), 0.01, device=device)

    @torch.no_grad()
    def call() -> torch.Tensor:
        x, y, z = few, rows, square
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
