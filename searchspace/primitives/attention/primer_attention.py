"""Primer attention: a short convolution over time mixes queries, keys and values with their neighbours before
attention.

Formula: softmax(Q K^T / sqrt(D)) V Wo, q_{i,c} = sum_k W_{c,k} (x Wq)_{i+k-left,c}, the same for k and v

So et al. 2021, "Primer", https://arxiv.org/abs/2109.08668, section 3, "multi-dconv-head attention". It is `attention`
with one more step: after the projections, each channel of each head of the queries, keys and values is convolved over
time with its own taps. left = K - 1 if causal, as published, else K // 2. The input is zero beyond the ends and at
padding. Taps start at 0.5 for the position itself and 0.5 / K for the others. B batch, T time, H heads, G key and value
heads, K taps (`kernel`), D width of one head, C = H * D model width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from kernels.attention.attention import attention
from kernels.convolution.depthwise_convolution import depthwise_convolution
from searchspace.checks import at_least, probability
from searchspace.contract import Capabilities, Context, Primitive, given
from searchspace.cost import Cost, Shape, kept, linear, matmul, state
from searchspace.primitives.attention.heads import check_heads, merge, places, split
from searchspace.primitives.attention.kept_keys import KEPT, attend_to_kept, bias_of_kept, remember
from searchspace.primitives.convolution.neighbours import TAIL, before, tail_cost, with_neighbours
from searchspace.published import Published
from searchspace.registry import primitive
from searchspace.rotation import Positioned


@dataclass(frozen=True, kw_only=True)
class PrimerAttentionConfig(Positioned):
    """`key_value_heads`: number of key and value heads; null takes as many as heads."""

    dim: int = given()
    causal: bool = given(False)
    heads: int = 4
    key_value_heads: int | None = None
    kernel: int = 3
    bias: bool = False
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_heads(self.dim, self.heads, self.key_value_heads)
        at_least(1, kernel=self.kernel)
        probability(dropout=self.dropout)

    @property
    def groups(self) -> int:
        """The number of key and value heads."""
        return self.key_value_heads or self.heads

    @property
    def key_value_width(self) -> int:
        """The width of the keys of all heads at one position; the values have the same width."""
        return self.groups * (self.dim // self.heads)

    @property
    def width(self) -> int:
        """The width of concatenated queries, keys and values."""
        return self.dim + 2 * self.key_value_width


@primitive(
    "primer_attention",
    PrimerAttentionConfig,
    published=Published(),
)
class PrimerAttention(Primitive):
    """Convolved multi-head attention. Streaming keeps the last K - 1 projections and all keys and values so far."""

    capabilities = Capabilities(turned=True)

    def __init__(self, config: PrimerAttentionConfig) -> None:
        super().__init__()
        self.config = config
        self.query_key_value = nn.Linear(config.dim, config.width, bias=config.bias)
        taps = torch.full((config.width, config.kernel), 0.5 / config.kernel)
        taps[:, before(config.kernel, causal=config.causal)] = 0.5
        self.taps = nn.Parameter(taps)
        self.output = nn.Linear(config.dim, config.dim, bias=config.bias)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """x: [B, T, C] -> [B, T, C]. Raises ValueError if it is not causal and the context is streaming."""
        config = self.config
        projected = with_neighbours(self, self.query_key_value(x), config.kernel, context, causal=config.causal)
        # Make each position's channels contiguous, which fused attention needs. Otherwise the plain path is taken, and
        # it keeps a matrix of all pairs.
        q, k, v = self._heads(depthwise_convolution(projected, self.taps).contiguous())
        slot, queries = context.slot(self, causal=config.causal), places(x, context)
        if context.position is not None:
            q, k = context.position.rotate(q, queries), context.position.rotate(k, queries)
        dropout = config.dropout if self.training else 0.0
        if slot is not None:
            parts = remember(slot, k, v)
            bias = bias_of_kept(context, config.heads, queries, parts)
            return self.output(merge(attend_to_kept(q, parts, bias=bias, dropout=dropout)))
        bias = None if context.position is None else context.position.bias(config.heads, queries, queries)
        out = attention(q, k, v, causal=config.causal, keys=context.padding, bias=bias, dropout=dropout)
        return self.output(merge(out))

    def _heads(self, mixed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """[B, T, (H + 2 G) D] -> queries [B, H, T, D], keys and values, each [B, G, T, D]."""
        heads = split(mixed, self.config.heads + 2 * self.config.groups)
        q, k, v = heads.split([self.config.heads, self.config.groups, self.config.groups], dim=1)
        return q, k, v

    @classmethod
    def states(cls, config: PrimerAttentionConfig) -> Mapping[str, str]:
        return KEPT | TAIL

    @classmethod
    def cost(cls, config: PrimerAttentionConfig, shape: Shape) -> Cost:
        C, W, K, E = config.dim, config.key_value_width, config.kernel, config.width
        streamed = 2 * shape.length * W if config.causal else 0
        return (
            linear(shape, C, E, bias=config.bias)
            + matmul(shape.rows, K, E)
            + kept(shape, shape.batch * (shape.length + K - 1) * E)  # the projections that the taps read
            + Cost(parameters=E * K)
            + tail_cost(K, E, shape, causal=config.causal)
            + matmul(shape.length, C // config.heads, 2 * shape.length, count=shape.batch * config.heads)
            + kept(shape, shape.rows * (C + 2 * W + config.heads))
            + linear(shape, C, C, bias=config.bias)
            + state(shape, 0, growing=streamed)
        )
