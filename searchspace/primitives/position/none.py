"""No positions: the model sees the order only through blocks that depend on it. The base of all other position
encodings.

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
    """The three places where positions can enter, without effect; see `searchspace.contract.PositionModule`."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """x: [B, T, C], positions: [T] or [B, T] -> [B, T, C], added to the input."""
        return x

    def rotate(self, heads: Tensor, positions: Tensor) -> Tensor:
        """heads: [B, H, T, D], positions: [T] or [B, T] -> [B, H, T, D], queries or keys."""
        return heads

    def bias(self, heads: int, queries: Tensor, keys: Tensor) -> Tensor | None:
        """queries: [Tq], keys: [Tk], their positions -> [H, Tq, Tk] to add to the scores, or None."""
        return None

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """x: [B, T, C] -> [B, T, C], the input with its positions. They count from 0 unless the context has
        positions.
        """
        positions = context.positions
        return self.embed(x, torch.arange(x.shape[1], device=x.device) if positions is None else positions)

    @classmethod
    def cost(cls, config: Any, shape: Shape) -> Cost:
        return Cost()
