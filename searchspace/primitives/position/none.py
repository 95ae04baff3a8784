"""No positions: the model knows order only through what its blocks do with it. The others start from this.

Formula: y = x
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from searchspace.contract import Context, Primitive, given
from searchspace.cost import Cost, Shape
from searchspace.registry import primitive


@dataclass(frozen=True, kw_only=True)
class NoPositionConfig:
    dim: int = given()


@primitive("none", NoPositionConfig, role="position")
class NoPosition(Primitive):
    """The three places where positions may enter, all left alone; see `searchspace.contract.PositionModule`."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        return x

    def rotate(self, heads: Tensor, positions: Tensor) -> Tensor:
        return heads

    def bias(self, heads: int, queries: Tensor, keys: Tensor) -> Tensor | None:
        return None

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """x: [B, T, C], the input with its positions, counted from 0 unless the context says."""
        positions = context.positions
        return self.embed(x, torch.arange(x.shape[1], device=x.device) if positions is None else positions)

    @classmethod
    def cost(cls, config: Any, shape: Shape) -> Cost:
        return Cost()
