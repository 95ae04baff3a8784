"""Learned positions: one trained vector per position is added to the input.

Formula: x_p + P_p, P a table of [length, C]

Gehring et al. 2017, "Convolutional Sequence to Sequence Learning", https://arxiv.org/abs/1705.03122, section 3.1. The
table has `length` rows. A longer sequence is an error, because no vectors were trained for it. For images of another
size, the positions of the patches are interpolated (`resized`): Dosovitskiy et al. 2021, "An Image is Worth 16x16
Words", https://arxiv.org/abs/2010.11929, section 3.2.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from searchspace.checks import at_least
from searchspace.contract import given
from searchspace.cost import Cost, Shape
from searchspace.primitives.position.none import NoPosition
from searchspace.published import Published
from searchspace.registry import primitive

Mode = Literal["bilinear", "bicubic"]


@dataclass(frozen=True, kw_only=True)
class LearnedConfig:
    """`length`: number of positions in the table; longer sequences are an error.

    Raises ValueError if the length is below 1.
    """

    dim: int = given()
    length: int = 1024

    def __post_init__(self) -> None:
        at_least(1, length=self.length)

    @property
    def longest(self) -> int:
        """The length of the longest sequence that it has positions for."""
        return self.length


@primitive(
    "learned",
    LearnedConfig,
    role="position",
    published=Published(code=("transformers",)),
)
class Learned(NoPosition):
    """A table of vectors, added to the input."""

    def __init__(self, config: LearnedConfig) -> None:
        super().__init__(config)
        self.table = nn.Parameter(0.02 * torch.randn(config.length, config.dim))

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """x: [B, T, C], positions: [T] or [B, T] -> [B, T, C]. Raises ValueError if a position is beyond the table."""
        # A compiled graph cannot read values; there the look-up itself fails.
        last = 0 if torch.compiler.is_compiling() else int(positions.max())
        if last >= self.config.length:
            raise ValueError(
                f"Position {last} (counted from 0) is beyond the {self.config.length} learned positions. "
                f"Set position: learned: {{length: ...}} to the longest sequence, or use rotary, sinusoidal or alibi."
            )
        return x + F.embedding(positions, self.table)

    def resize(self, old: tuple[int, int], new: tuple[int, int], mode: Mode = "bicubic") -> None:
        """Interpolate the table for images of `new` instead of `old` rows and columns of patches; see `resized`.

        Raises ValueError if the table does not have the grid `old`.
        """
        self.table = nn.Parameter(resized(self.table.detach(), old, new, mode))
        self.config = replace(self.config, length=len(self.table))

    @classmethod
    def cost(cls, config: LearnedConfig, shape: Shape) -> Cost:
        """The positions are kept, eight bytes each."""
        return Cost(parameters=config.length * config.dim, activation_bytes=8 * shape.length)


def resized(table: Tensor, old: tuple[int, int], new: tuple[int, int], mode: Mode = "bicubic") -> Tensor:
    """table: [R * S, C] or [1 + R * S, C] of a grid `old` = (R, S) -> a table of the grid `new`, interpolated in 2-D.

    If there is one more row than the grid has, the first row belongs to the class token and is kept unchanged.

    Raises ValueError if the table has another number of rows.
    """
    rows, columns = old
    front = len(table) - rows * columns
    if front not in (0, 1):
        raise ValueError(
            f"{len(table)} learned positions are not a grid of {rows} x {columns}, with or without a class token first."
        )
    grid = table[front:].T.unflatten(1, old)[None]  # [1, C, R, S]
    grid = F.interpolate(grid, size=new, mode=mode, align_corners=False)
    return torch.cat([table[:front], grid[0].flatten(1).T])
