"""Axial positions: one learned vector per row and one per column of a grid, so that the tables of long sequences stay
small.

Formula: x_p + [R_{p // columns}; C_{p % columns}], or x_p + R_{p // columns} + C_{p % columns}

Kitaev, Kaiser, Levskaya 2020, "Reformer", https://arxiv.org/abs/2001.04451, after Ho et al. 2019, "Axial Attention",
https://arxiv.org/abs/1912.12180. Position p is in row p // columns and column p % columns of the grid. "concatenate"
gives the first `row_share` of the channels to the row and the others to the column. "sum" adds two vectors of full
width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from searchspace.checks import at_least, probability
from searchspace.contract import given
from searchspace.cost import Cost, Shape
from searchspace.primitives.position.none import NoPosition
from searchspace.published import Published
from searchspace.registry import primitive


@dataclass(frozen=True, kw_only=True)
class AxialConfig:
    """`combine`: whether the two vectors are concatenated or added.
    `row_share`: share of the channels for the row, if concatenated.

    Raises ValueError if the grid is empty, the share is not between 0 and 1, or it leaves no channels for rows or
    columns.
    """

    dim: int = given()
    rows: int = 32
    columns: int = 32
    combine: Literal["concatenate", "sum"] = "concatenate"
    row_share: float = 0.5

    def __post_init__(self) -> None:
        at_least(1, rows=self.rows, columns=self.columns)
        probability(row_share=self.row_share)
        if min(self.widths) < 1:
            raise ValueError(
                f"row_share must leave channels to the rows and to the columns, but {self.row_share} of "
                f"{self.dim} is {self.widths[0]}; use another share or combine: sum."
            )

    @property
    def longest(self) -> int:
        """The length of the longest sequence that it has positions for."""
        return self.rows * self.columns

    @property
    def widths(self) -> tuple[int, int]:
        """The number of channels of the two tables."""
        if self.combine == "sum":
            return self.dim, self.dim
        first = round(self.row_share * self.dim)
        return first, self.dim - first


@primitive(
    "axial",
    AxialConfig,
    role="position",
    published=Published(
        code=("transformers",),
    ),
)
class Axial(NoPosition):
    """The sum or concatenation of a row table and a column table, added to the input."""

    def __init__(self, config: AxialConfig) -> None:
        super().__init__(config)
        first, second = config.widths
        self.rows = nn.Parameter(0.02 * torch.randn(config.rows, first))
        self.columns = nn.Parameter(0.02 * torch.randn(config.columns, second))

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """x: [B, T, C], positions: [T] or [B, T] -> [B, T, C]. Raises ValueError if a position is beyond the grid."""
        config = self.config
        # A compiled graph cannot read values; there the look-up itself fails.
        last = 0 if torch.compiler.is_compiling() else int(positions.max())
        if last >= config.rows * config.columns:
            raise ValueError(
                f"Position {last} (counted from 0) is beyond the {config.rows} x {config.columns} axial positions. "
                f"Set position: axial: {{rows: ..., columns: ...}} to hold the longest sequence."
            )
        row = F.embedding(positions // config.columns, self.rows)
        column = F.embedding(positions % config.columns, self.columns)
        return x + (row + column if config.combine == "sum" else torch.cat([row, column], dim=-1))

    @classmethod
    def cost(cls, config: AxialConfig, shape: Shape) -> Cost:
        """The rows and columns of the positions are kept, eight bytes each."""
        first, second = config.widths
        return Cost(parameters=config.rows * first + config.columns * second, activation_bytes=16 * shape.length)
