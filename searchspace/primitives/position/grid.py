"""Positions on a grid, for the patches of an image: a vector for the row plus one for the column.

Formula: x_p + R_{p // columns} + C_{p % columns}, or [waves of the row; waves of the column]

learned: one trained vector per row and one per column are added, as in Kitaev et al. 2020, "Reformer",
https://arxiv.org/abs/2001.04451, section 2. sinusoidal: half of the channels are the waves of the row and half are
those of the column, as in Carion et al. 2020, "End-to-End Object Detection with Transformers",
https://arxiv.org/abs/2005.12872, appendix A.4; nothing is learned. Position p is in row p // columns and column p %
columns. If the first position is a class token (`first`), it gets no vector, and the grid starts after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from searchspace.checks import at_least
from searchspace.contract import given
from searchspace.cost import Cost, Shape
from searchspace.primitives.position.none import NoPosition
from searchspace.primitives.position.sinusoidal import sinusoid
from searchspace.published import Published
from searchspace.registry import primitive


@dataclass(frozen=True, kw_only=True)
class GridConfig:
    """`kind`: learned vectors, or sinusoidal ones.
    `first`: whether position 0 is a class token.

    Raises ValueError if the grid is empty, or the positions are sinusoidal and dim is not a multiple of 4.
    """

    dim: int = given()
    rows: int = 32
    columns: int = 32
    kind: Literal["learned", "sinusoidal"] = "learned"
    first: bool = False

    def __post_init__(self) -> None:
        at_least(1, rows=self.rows, columns=self.columns)
        if self.kind == "sinusoidal" and self.dim % 4:
            raise ValueError(
                "Sinusoidal positions on a grid are pairs of sine and cosine for rows and for columns, so dim must be "
                f"a multiple of 4, but got {self.dim}."
            )

    @property
    def longest(self) -> int:
        """The length of the longest sequence that it has positions for."""
        return self.rows * self.columns + self.first


@primitive(
    "grid",
    GridConfig,
    role="position",
    published=Published(),
)
class Grid(NoPosition):
    """Vectors of rows and columns, added to the input."""

    def __init__(self, config: GridConfig) -> None:
        super().__init__(config)
        if config.kind == "learned":
            self.rows = nn.Parameter(0.02 * torch.randn(config.rows, config.dim))
            self.columns = nn.Parameter(0.02 * torch.randn(config.columns, config.dim))

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """x: [B, T, C], positions: [T] or [B, T] -> [B, T, C]. Raises ValueError if a position is beyond the grid."""
        places = positions - int(self.config.first)
        self._check(places)
        on_grid = places.clamp(min=0)
        row, column = on_grid // self.config.columns, on_grid % self.config.columns
        if self.config.kind == "learned":
            vectors = F.embedding(row, self.rows) + F.embedding(column, self.columns)
        else:
            wide = torch.promote_types(x.dtype, torch.float32)
            vectors = torch.cat([sinusoid(p, x.shape[2] // 2, dtype=wide) for p in (row, column)], dim=-1).to(x.dtype)
        return x + (vectors.masked_fill((places < 0)[..., None], 0) if self.config.first else vectors)

    def _check(self, places: Tensor) -> None:
        rows, columns = self.config.rows, self.config.columns
        # A compiled graph cannot read values; there the look-up itself fails.
        last = 0 if torch.compiler.is_compiling() else int(places.max())
        if last >= rows * columns:
            raise ValueError(
                f"Position {last} of the grid (counted from 0) is beyond its {rows} rows of {columns} columns. "
                "Set position: grid: {rows: ..., columns: ...} to those of the largest image."
            )

    @classmethod
    def cost(cls, config: GridConfig, shape: Shape) -> Cost:
        """If learned, the row and column of each position are kept, eight bytes each, and the mask of the
        class token.
        """
        if config.kind == "sinusoidal":
            return Cost()
        look_ups = shape.length * (16 + config.first)
        return Cost(parameters=(config.rows + config.columns) * config.dim, activation_bytes=look_ups)
