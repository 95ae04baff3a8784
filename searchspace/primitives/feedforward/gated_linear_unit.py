"""Gated linear unit alone, without the input and output maps of a gated feed-forward block.

Formula: (V x + b) * sigmoid(W x + c)

Dauphin et al. 2017, https://arxiv.org/abs/1612.08083, with a kernel of one. It is the first step of the encoder's cell
in So et al. 2019, "The Evolved Transformer", https://arxiv.org/abs/1901.11117. V and W are one map whose SECOND half is
the gate, as in `torch.nn.functional.glu`. B batch, T time, C model width.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from kernels.rowwise.gated_activation import gated_activation
from searchspace.checks import probability
from searchspace.contract import Capabilities, Context, Primitive, given
from searchspace.cost import Cost, Shape, kept, linear
from searchspace.primitives.feedforward.hidden import dropped
from searchspace.published import Published
from searchspace.registry import primitive


@dataclass(frozen=True, kw_only=True)
class GatedLinearUnitConfig:
    """Raises ValueError if the dropout is not a probability."""

    dim: int = given()
    bias: bool = True
    dropout: float = 0.0

    def __post_init__(self) -> None:
        probability(dropout=self.dropout)


@primitive(
    "gated_linear_unit",
    GatedLinearUnitConfig,
    published=Published(
        code=("torch",),
    ),
)
class GatedLinearUnit(Primitive):
    """Values times their gates. Dropout is applied to the product."""

    capabilities = Capabilities(pointwise=True)

    def __init__(self, config: GatedLinearUnitConfig) -> None:
        super().__init__()
        self.inner = nn.Linear(config.dim, 2 * config.dim, bias=config.bias)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """x: [B, T, C] -> [B, T, C]."""
        return self.dropout(gated_activation(self.inner(x), "sigmoid", first=False))

    @classmethod
    def cost(cls, config: GatedLinearUnitConfig, shape: Shape) -> Cost:
        return (
            linear(shape, config.dim, 2 * config.dim, bias=config.bias)
            + kept(shape, 2 * shape.rows * config.dim)  # kept for the gradient of the gate
            + dropped(config.dropout, shape, config.dim)
        )
