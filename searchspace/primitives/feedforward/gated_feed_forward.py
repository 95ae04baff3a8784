"""Gated feed-forward: one half of the hidden layer controls how much of the other half passes.

Formula: W2 (g(x W) * x V)

Shazeer 2020, "GLU Variants Improve Transformer", https://arxiv.org/abs/2002.05202, eq. 5-6. g sigmoid is GLU (Dauphin
et al. 2017), relu ReGLU, gelu GEGLU, silu SwiGLU, identity the bilinear layer. W and V are one map whose FIRST half is
the gate, as in the paper; `torch.nn.functional.glu` uses the second half. B batch, T time, C model width, E hidden
width: `hidden`, else 2/3 * expand * C, rounded to the nearest multiple of 8 and at least 8. It then has as many
parameters as a feed-forward block with the same `expand`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from kernels.rowwise.gated_activation import gated_activation
from searchspace.checks import at_least, probability
from searchspace.contract import Capabilities, Context, Primitive, given
from searchspace.cost import Cost, Shape, kept, linear
from searchspace.primitives.feedforward.hidden import dropped
from searchspace.published import Published
from searchspace.registry import primitive

MULTIPLE = 8  # widths that the matrix units of GPUs process efficiently in half precision


@dataclass(frozen=True, kw_only=True)
class GatedFeedForwardConfig:
    """`hidden`: the width of each half of the hidden layer; null takes 2/3 of `expand` times the width.
    `gate`: g, the activation of the gate.

    Raises ValueError if a width is below 1 or the dropout is not a probability.
    """

    dim: int = given()
    expand: int = 4
    hidden: int | None = None
    gate: Literal["sigmoid", "relu", "gelu", "gelu_tanh", "quick_gelu", "silu", "identity"] = "silu"
    bias: bool = False
    dropout: float = 0.0

    def __post_init__(self) -> None:
        at_least(1, expand=self.expand, hidden=self.hidden)
        probability(dropout=self.dropout)

    @property
    def width(self) -> int:
        """E, the width of each half of the hidden layer. Integer arithmetic gives the same width on every machine."""
        if self.hidden is not None:
            return self.hidden
        return max(1, (4 * self.expand * self.dim + 3 * MULTIPLE) // (6 * MULTIPLE)) * MULTIPLE


@primitive(
    "gated_feed_forward",
    GatedFeedForwardConfig,
    published=Published(code=("transformers",)),
)
class GatedFeedForward(Primitive):
    """A gated hidden layer. Dropout is applied to the gated product."""

    capabilities = Capabilities(pointwise=True)

    def __init__(self, config: GatedFeedForwardConfig) -> None:
        super().__init__()
        self.gate = config.gate
        self.inner = nn.Linear(config.dim, 2 * config.width, bias=config.bias)
        self.output = nn.Linear(config.width, config.dim, bias=config.bias)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """x: [B, T, C] -> [B, T, C]."""
        return self.output(self.dropout(gated_activation(self.inner(x), self.gate)))

    @classmethod
    def cost(cls, config: GatedFeedForwardConfig, shape: Shape) -> Cost:
        opened = 0 if config.gate == "identity" else config.width  # g of the gate
        return (
            linear(shape, config.dim, 2 * config.width, bias=config.bias)
            + kept(shape, shape.rows * (2 * config.width + opened))
            + dropped(config.dropout, shape, config.width)
            + linear(shape, config.width, config.dim, bias=config.bias)
        )
