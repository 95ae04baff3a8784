"""Learned positions: one trained vector a position is added to the input.

Gehring et al. 2017, "Convolutional Sequence to Sequence Learning", https://arxiv.org/abs/1705.03122, section 3.1. The
table has `length` rows; a longer sequence is refused, because nothing was learned for it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from searchspace.checks import at_least
from searchspace.contract import given
from searchspace.cost import Cost, Shape
from searchspace.primitives.position.none import NoPosition
from searchspace.registry import primitive


@dataclass(frozen=True, kw_only=True)
class LearnedConfig:
    dim: int = given()
    length: int = 1024

    def __post_init__(self) -> None:
        at_least(1, length=self.length)


@primitive("learned", LearnedConfig, role="position")
class Learned(NoPosition):
    def __init__(self, config: LearnedConfig) -> None:
        super().__init__(config)
        self.table = nn.Parameter(0.02 * torch.randn(config.length, config.dim))

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """x: [B, T, C], positions: [T] -> [B, T, C]. Raises ValueError beyond the table."""
        # A compiled graph cannot look at values; there the look-up itself fails.
        last = 0 if torch.compiler.is_compiling() else int(positions.max())
        if last >= self.config.length:
            raise ValueError(
                f"Position {last} (counted from 0) lies beyond the {self.config.length} learned positions. "
                f"Set position: learned: {{length: ...}} to the longest sequence, or use rotary, sinusoidal or alibi."
            )
        return x + F.embedding(positions, self.table)

    @classmethod
    def cost(cls, config: LearnedConfig, shape: Shape) -> Cost:
        """The positions are kept, eight bytes each."""
        return Cost(parameters=config.length * config.dim, activation_bytes=8 * shape.length)
