"""Feed-forward: every position alone goes through one wide hidden layer.

Vaswani et al. 2017, "Attention Is All You Need", https://arxiv.org/abs/1706.03762, eq. 2: W2 f(W1 x + b1) + b2.
f was relu there; here the default is gelu, as in GPT and BERT.
B batch, T time, C model width, E = expand * C hidden width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from searchspace.checks import at_least, probability
from searchspace.contract import Context, Primitive, given
from searchspace.cost import Cost, Shape, kept, linear
from searchspace.primitives.feedforward.hidden import ACTIVATIONS, dropped
from searchspace.registry import primitive


@dataclass(frozen=True, kw_only=True)
class FeedForwardConfig:
    dim: int = given()
    expand: int = 4
    activation: Literal["relu", "gelu", "silu", "squared_relu"] = "gelu"
    bias: bool = True
    dropout: float = 0.0

    def __post_init__(self) -> None:
        at_least(1, expand=self.expand)
        probability(dropout=self.dropout)

    @property
    def hidden(self) -> int:
        """Width of the hidden layer."""
        return self.expand * self.dim


@primitive("feed_forward", FeedForwardConfig)
class FeedForward(Primitive):
    """Two linear maps with an activation between; dropout falls on the hidden layer."""

    def __init__(self, config: FeedForwardConfig) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[config.activation]
        self.inner = nn.Linear(config.dim, config.hidden, bias=config.bias)
        self.output = nn.Linear(config.hidden, config.dim, bias=config.bias)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        return self.output(self.dropout(self.activation(self.inner(x))))

    @classmethod
    def cost(cls, config: FeedForwardConfig, shape: Shape) -> Cost:
        """Relu's derivative is read off its result, which the second map keeps anyway; the others keep their input."""
        inner = 0 if config.activation == "relu" else shape.rows * config.hidden
        return (
            linear(shape, config.dim, config.hidden, bias=config.bias)
            + kept(shape, inner)
            + dropped(config.dropout, shape, config.hidden)
            + linear(shape, config.hidden, config.dim, bias=config.bias)
        )
