"""Feed-forward block: two linear maps with an activation between them, applied to each position independently.

Formula: W2 f(W1 x + b1) + b2

Vaswani et al. 2017, "Attention Is All You Need", https://arxiv.org/abs/1706.03762, eq. 2. There f is relu; the default
here is gelu, as in GPT and BERT. Squared relu: So et al. 2021, "Primer", https://arxiv.org/abs/2109.08668. With
`inner_norm` the formula is W2 LN(f(W1 x + b1)) + b2, as in the released decoder of the Evolved Transformer,
https://arxiv.org/abs/1901.11117. With `chunks` the positions are computed in that many parts, and the backward pass
computes each part again. The hidden layer is then never in memory for all positions at once: Kitaev et al. 2020,
"Reformer", https://arxiv.org/abs/2001.04451, section 3. The results are the same. B batch, T time, C model width, E
hidden width: `hidden`, else expand * C.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from searchspace.checks import at_least, probability
from searchspace.contract import Capabilities, Context, Primitive, given
from searchspace.cost import Cost, Shape, kept, linear, matmul
from searchspace.primitives.feedforward.hidden import ACTIVATIONS, dropped
from searchspace.published import Published
from searchspace.registry import primitive

EPS = 1e-6  # of the inner norm


@dataclass(frozen=True, kw_only=True)
class FeedForwardConfig:
    """`inner_norm`: whether the hidden layer is normalised.
    `chunks`: number of parts in which the positions are computed, to save memory in training.

    Raises ValueError if a width or the number of chunks is below 1, or the dropout is not a probability.
    """

    dim: int = given()
    expand: int = 4
    hidden: int | None = None
    activation: Literal["relu", "gelu", "gelu_tanh", "quick_gelu", "silu", "squared_relu"] = "gelu"
    inner_norm: bool = False
    bias: bool = True
    dropout: float = 0.0
    chunks: int = 1

    def __post_init__(self) -> None:
        at_least(1, expand=self.expand, hidden=self.hidden, chunks=self.chunks)
        probability(dropout=self.dropout)

    @property
    def width(self) -> int:
        """E, the width of the hidden layer."""
        return self.expand * self.dim if self.hidden is None else self.hidden


@primitive(
    "feed_forward",
    FeedForwardConfig,
    published=Published(
        paper={"the activation is gelu instead of relu": "activation: relu"},
        code=("torch", "transformers"),
        released={"GPT-2 has the tanh form of gelu": "activation: gelu_tanh"},
    ),
)
class FeedForward(Primitive):
    """Two linear maps with an activation between them. Dropout is applied to the hidden layer, before its norm."""

    capabilities = Capabilities(pointwise=True)

    def __init__(self, config: FeedForwardConfig) -> None:
        super().__init__()
        self.chunks = config.chunks
        self.activation = ACTIVATIONS[config.activation]
        self.inner = nn.Linear(config.dim, config.width, bias=config.bias)
        self.norm = nn.LayerNorm(config.width, EPS) if config.inner_norm else nn.Identity()
        self.output = nn.Linear(config.width, config.dim, bias=config.bias)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """x: [B, T, C] -> [B, T, C]."""
        if self.chunks == 1:
            return self._every(x)
        parts = x.chunk(self.chunks, dim=1)
        if not torch.is_grad_enabled():
            return torch.cat([self._every(part) for part in parts], dim=1)
        return torch.cat([checkpoint(self._every, part, use_reentrant=False) for part in parts], dim=1)

    def _every(self, x: Tensor) -> Tensor:
        return self.output(self.norm(self.dropout(self.activation(self.inner(x)))))

    @classmethod
    def cost(cls, config: FeedForwardConfig, shape: Shape) -> Cost:
        maps = linear(shape, config.dim, config.width, bias=config.bias) + _norm(config, shape)
        whole = maps + _hidden(config, shape) + linear(shape, config.width, config.dim, bias=config.bias)
        if config.chunks == 1:
            return whole
        again = matmul(shape.rows, config.dim, config.width).flops  # the inner map, in the backward pass
        return Cost(
            parameters=whole.parameters,
            flops=whole.flops,
            training_flops=whole.training_flops + again,
            expected_flops=whole.expected_flops,
            activation_bytes=kept(shape, shape.rows * config.dim).activation_bytes,
        )


def _hidden(config: FeedForwardConfig, shape: Shape) -> Cost:
    """Relu computes its gradient from its result, which the next layer keeps anyway. Other activations keep their
    input.
    """
    inner = 0 if config.activation == "relu" else shape.rows * config.width
    return kept(shape, inner) + dropped(config.dropout, shape, config.width)


def _norm(config: FeedForwardConfig, shape: Shape) -> Cost:
    if not config.inner_norm:
        return Cost()
    statistics = Cost(activation_bytes=2 * shape.rows * max(4, shape.element_bytes))
    return Cost(parameters=2 * config.width) + kept(shape, shape.rows * config.width) + statistics
