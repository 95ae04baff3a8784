"""Rotary positions: queries and keys are turned by angles that grow with their place, so scores see distances.

Su et al. 2021, "RoFormer", https://arxiv.org/abs/2104.09864, eq. 34: pair m of a head of width D turns by
p * base^(-2m/D). Layout "interleaved" pairs (2m, 2m + 1), as the paper does; "halves" pairs (m, m + D/2), as Llama and
GPT-NeoX do. The two differ by a permutation of the rows of Wq and Wk.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from searchspace.contract import given
from searchspace.primitives.position.none import NoPosition
from searchspace.registry import primitive


@dataclass(frozen=True, kw_only=True)
class RotaryConfig:
    dim: int = given()
    layout: Literal["halves", "interleaved"] = "halves"
    base: float = 10000.0

    def __post_init__(self) -> None:
        if not self.base > 0:
            raise ValueError(f"base must be above 0, but got base={self.base}.")


@primitive("rotary", RotaryConfig, role="position")
class Rotary(NoPosition):
    def rotate(self, heads: Tensor, positions: Tensor) -> Tensor:
        """heads: [B, H, T, D], positions: [T]. Raises ValueError when D is odd. Angles are in float32 or wider."""
        D = heads.shape[3]
        if D % 2:
            raise ValueError(f"Rotary positions turn pairs, so a head's width must be even, but it is {D}.")
        wide = torch.promote_types(heads.dtype, torch.float32)
        frequencies = self.config.base ** (-torch.arange(0, D, 2, device=heads.device, dtype=wide) / D)
        angles = positions.to(wide)[:, None] * frequencies  # [T, D / 2]
        cos, sin = angles.cos(), angles.sin()
        if self.config.layout == "halves":
            first, second = heads.to(wide).chunk(2, dim=3)
            turned = torch.cat([first * cos - second * sin, first * sin + second * cos], dim=3)
        else:
            first, second = heads.to(wide).unflatten(3, (D // 2, 2)).unbind(4)
            turned = torch.stack([first * cos - second * sin, first * sin + second * cos], dim=4).flatten(3)
        return turned.to(heads.dtype)
