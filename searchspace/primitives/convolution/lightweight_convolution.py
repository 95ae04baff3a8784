"""Lightweight convolution: a gate, then an average of neighbours with softmax-normalised taps that the channels of a
head share.

Formula: u = a * sigmoid(g), [a; g] = W1 x + b1, o_{i,c} = sum_k softmax_k(V_{h,k}) u_{i+k-left,c}, out = W2 o + b2

Wu et al. 2019, "Pay Less Attention with Lightweight and Dynamic Convolutions", https://arxiv.org/abs/1901.10430,
section 3 and figure 2b. The gate g is the SECOND half, as in `torch.nn.functional.glu`. Channel c belongs to head h = c
// (C / H). The softmax runs over all K taps, including those beyond the ends. DropConnect (`dropout`) is applied to the
normalised taps. left = K - 1 if causal, else K // 2. At padding and beyond the ends u is zero. B batch, T time, H
heads, K taps (`kernel`), C model width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from kernels.convolution.lightweight_convolution import lightweight_convolution
from searchspace.checks import at_least, probability
from searchspace.contract import Context, Primitive, given
from searchspace.cost import Cost, Shape, kept, linear, matmul
from searchspace.primitives.attention.heads import check_heads
from searchspace.primitives.convolution.neighbours import TAIL, tail_cost, with_neighbours
from searchspace.published import Published
from searchspace.registry import primitive


@dataclass(frozen=True, kw_only=True)
class LightweightConvolutionConfig:
    """`channel_bias`: whether each channel has a bias after the convolution.

    Raises ValueError if the kernel is below 1, heads does not divide dim, or the dropout is not a probability.
    """

    dim: int = given()
    causal: bool = given(False)
    kernel: int = 7
    heads: int = 4
    channel_bias: bool = False
    dropout: float = 0.0

    def __post_init__(self) -> None:
        at_least(1, kernel=self.kernel)
        check_heads(self.dim, self.heads)
        probability(dropout=self.dropout)


@primitive(
    "lightweight_convolution",
    LightweightConvolutionConfig,
    published=Published(
        code=("facebookresearch/fairseq",),
        released={"the convolution has a bias if conv_bias is set": "channel_bias: true"},
    ),
)
class LightweightConvolution(Primitive):
    """Gate, H x K normalised taps, output map. Streaming keeps the last K - 1 gated inputs, zeros before the first."""

    def __init__(self, config: LightweightConvolutionConfig) -> None:
        super().__init__()
        self.config = config
        self.input = nn.Linear(config.dim, 2 * config.dim)
        self.taps = nn.Parameter(torch.empty(config.heads, config.kernel))
        nn.init.xavier_uniform_(self.taps)
        self.bias = nn.Parameter(torch.zeros(config.dim)) if config.channel_bias else None
        self.output = nn.Linear(config.dim, config.dim)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """x: [B, T, C] -> [B, T, C]. Raises ValueError if it is not causal and the context is streaming."""
        gated = F.glu(self.input(x), dim=2)
        padded = with_neighbours(self, gated, self.config.kernel, context, causal=self.config.causal)
        taps = F.dropout(self.taps.softmax(1), self.config.dropout, self.training)  # [H, K]
        out = lightweight_convolution(padded, taps)
        return self.output(out if self.bias is None else out + self.bias)

    @classmethod
    def states(cls, config: LightweightConvolutionConfig) -> Mapping[str, str]:
        return TAIL

    @classmethod
    def cost(cls, config: LightweightConvolutionConfig, shape: Shape) -> Cost:
        C, K, taps = config.dim, config.kernel, config.heads * config.kernel
        drop = kept(shape, taps) + Cost(activation_bytes=taps) if config.dropout else Cost()
        return (
            linear(shape, C, 2 * C)
            + kept(shape, 2 * shape.rows * C + taps)  # for the gradients of gate and softmax
            + drop
            + matmul(shape.rows, K, C)
            + kept(shape, shape.batch * (shape.length + K - 1) * C + C * K)
            + linear(shape, C, C)
            + Cost(parameters=taps + (C if config.channel_bias else 0))
            + tail_cost(K, C, shape, causal=config.causal)
        )
