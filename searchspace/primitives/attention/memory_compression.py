"""Compression of old memories: `rate` consecutive inputs become one.

Rae et al. 2020, "Compressive Transformers", https://arxiv.org/abs/1911.05507, section 3.2. "convolution" has kernel and
stride `rate`. It is one linear map of `rate` concatenated inputs, the oldest first. "mean" and "max" work on each
channel and have no parameters. Padding counts as zero in the convolution; the other two leave it out. B batch, E
results, c rate, C width.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from kernels.attention.attention import attention
from searchspace.cost import Cost, Shape, kept, matmul

CompressionKind = Literal["convolution", "mean", "max"]


class Compression(nn.Module):
    """Compresses each group of `rate` consecutive inputs to one vector."""

    def __init__(self, kind: CompressionKind, rate: int, dim: int) -> None:
        super().__init__()
        self.kind, self.rate = kind, rate
        self.map = nn.Linear(rate * dim, dim) if kind == "convolution" else None

    def forward(self, x: Tensor, real: Tensor | None = None) -> Tensor:
        """x: [B, E * c, C], real: [B, E * c] or None -> [B, E, C]."""
        blocks = x.unflatten(1, (x.shape[1] // self.rate, self.rate))
        masked = None if real is None else ~real.view(blocks.shape[:3]).unsqueeze(3)
        if self.map is not None:
            return self.map((blocks if masked is None else blocks.masked_fill(masked, 0)).flatten(2))
        if masked is None:
            return blocks.mean(2) if self.kind == "mean" else blocks.amax(2)
        if self.kind == "mean":
            return blocks.masked_fill(masked, 0).sum(2) / (~masked).sum(2).clamp(min=1)
        return blocks.masked_fill(masked, -math.inf).amax(2).masked_fill(masked.all(2), 0)

    def readable(self, real: Tensor) -> Tensor:
        """real: [B, E * c] -> [B, E], True if any of the inputs is real."""
        return real.unflatten(1, (real.shape[1] // self.rate, self.rate)).any(2)


def reconstruction(
    q: Tensor, old: tuple[Tensor, Tensor], packed: tuple[Tensor, Tensor], real: tuple[Tensor, Tensor, Tensor] | None
) -> Tensor:
    """The mean of |A(h, old) - A(h, packed)|^2, a scalar; section 3.2, algorithm 2.

    q: [G, H, S, D]. `old` and `packed` are keys and values, [G, H, n, D] each; only `packed` gets a gradient. real:
    three masks, of the queries, old keys and packed keys, [G, n] each; None if all are real.
    """
    queries, keys, results = (None, None, None) if real is None else real
    with torch.no_grad():
        wanted = attention(q, *old, keys=keys)
    found = attention(q, *packed, keys=results)
    precise = torch.promote_types(found.dtype, torch.float32)
    if queries is None:
        return F.mse_loss(found.to(precise), wanted.to(precise))
    error = (found.to(precise) - wanted.to(precise)).square().mean((1, 3))  # [G, S]
    return (error * queries).sum() / queries.sum().clamp(min=1)


def compression_cost(kind: CompressionKind, rate: int, dim: int, shape: Shape, results: int) -> Cost:
    """The cost of `results` compressed vectors in the whole batch. The inputs get no gradient."""
    if kind != "convolution":
        return Cost()
    own = Cost(parameters=rate * dim * dim + dim)
    return own + matmul(results, rate * dim, dim, backward=1) + kept(shape, results * rate * dim)
