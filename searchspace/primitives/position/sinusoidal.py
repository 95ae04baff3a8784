"""Sinusoidal positions: waves of many lengths are added to the input.

Vaswani et al. 2017, "Attention Is All You Need", https://arxiv.org/abs/1706.03762, section 3.5.
"interleaved", the paper: pe[p, 2m] = sin(p w_m), pe[p, 2m+1] = cos(p w_m), w_m = 10000^(-2m/C).
"halves", its first released code: [sin | cos], w_m = 10000^(-m/(C/2 - 1)): other frequencies, not another order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from searchspace.contract import given
from searchspace.primitives.position.none import NoPosition
from searchspace.registry import primitive

Layout = Literal["interleaved", "halves"]


@dataclass(frozen=True, kw_only=True)
class SinusoidalConfig:
    """`layout`: whether sines and cosines are interleaved or in two halves."""

    dim: int = given()
    layout: Layout = "interleaved"

    def __post_init__(self) -> None:
        if self.dim % 2:
            raise ValueError(
                f"Sinusoidal positions are pairs of sine and cosine, so dim must be even, but got {self.dim}."
            )


@primitive("sinusoidal", SinusoidalConfig, role="position")
class Sinusoidal(NoPosition):
    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """x: [B, T, C], positions: [T] -> [B, T, C]."""
        wide = torch.promote_types(x.dtype, torch.float32)
        return x + sinusoid(positions, x.shape[2], self.config.layout, dtype=wide).to(x.dtype)


def sinusoid(
    positions: Tensor, dim: int, layout: Layout = "interleaved", *, dtype: torch.dtype = torch.float32
) -> Tensor:
    """positions: [T] -> [T, dim], the waves at those places."""
    m = torch.arange(dim // 2, device=positions.device, dtype=dtype)
    # Two channels are a single wave in either layout; the maximum keeps its exponent from being 0 / 0.
    exponents = m / (dim / 2) if layout == "interleaved" else m / max(dim / 2 - 1, 1)
    angles = positions.to(dtype)[:, None] * 10000.0**-exponents  # [T, dim / 2]
    return torch.stack([angles.sin(), angles.cos()], dim=2 if layout == "interleaved" else 1).flatten(1)
