"""Sinusoidal positions: sine and cosine waves of different lengths are added to the input.

Formula: x_p + pe[p], pe[p, 2m] = sin(p w_m), pe[p, 2m+1] = cos(p w_m), w_m = 10000^(-2m/C)

Vaswani et al. 2017, "Attention Is All You Need", https://arxiv.org/abs/1706.03762, section 3.5. "interleaved" is the
paper's formula, above. "halves" is that of its first released code: pe[p] = [sin | cos] with w_m = 10000^(-m/(C/2 -
1)). The frequencies differ too, not only the order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from searchspace.contract import given
from searchspace.primitives.position.none import NoPosition
from searchspace.published import Published
from searchspace.registry import primitive

Layout = Literal["interleaved", "halves"]


@dataclass(frozen=True, kw_only=True)
class SinusoidalConfig:
    """`layout`: whether sines and cosines are interleaved or in two halves.

    Raises ValueError if dim is odd.
    """

    dim: int = given()
    layout: Layout = "interleaved"

    def __post_init__(self) -> None:
        if self.dim % 2:
            raise ValueError(
                f"Sinusoidal positions are pairs of sine and cosine, so dim must be even, but got {self.dim}."
            )


@primitive(
    "sinusoidal",
    SinusoidalConfig,
    role="position",
    published=Published(
        code=("tensorflow/tensor2tensor",),
        released={"all sines precede all cosines, and their frequencies differ": "layout: halves"},
    ),
)
class Sinusoidal(NoPosition):
    """Fixed waves, added to the input."""

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """x: [B, T, C], positions: [T] or [B, T] -> [B, T, C]."""
        wide = torch.promote_types(x.dtype, torch.float32)
        return x + sinusoid(positions, x.shape[2], self.config.layout, dtype=wide).to(x.dtype)


def sinusoid(
    positions: Tensor, dim: int, layout: Layout = "interleaved", *, dtype: torch.dtype = torch.float32
) -> Tensor:
    """positions: [...] -> [..., dim], the waves at these positions."""
    m = torch.arange(dim // 2, device=positions.device, dtype=dtype)
    # With two channels there is one wave in both layouts; the maximum avoids the exponent 0 / 0.
    exponents = m / (dim / 2) if layout == "interleaved" else m / max(dim / 2 - 1, 1)
    angles = positions.to(dtype)[..., None] * 10000.0**-exponents  # [..., dim / 2]
    return torch.stack([angles.sin(), angles.cos()], dim=-1 if layout == "interleaved" else -2).flatten(-2)
