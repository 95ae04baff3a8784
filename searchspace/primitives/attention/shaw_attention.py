"""Attention with relative positions: keys and values carry a learned vector for how far they are from the query.

Shaw et al. 2018, "Self-Attention with Relative Position Representations", https://arxiv.org/abs/1803.02155, eq. 3-5:
score_ij = q_i (k_j + a_{clip(j - i)}) / sqrt(D), out_i = sum_j w_ij (v_j + b_{clip(j - i)}), clip to [-c, c]; a and b
are one pair of tables [2 c + 1, D] for all heads of a layer. In causal attention their last c rows are never read.
These are its positions; rotary positions and ALiBi do not reach it.
B batch, T time, H heads, D width of one head, c clip, C = H * D model width.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from kernels.attention.relative_attention import relative_attention
from searchspace.checks import at_least, probability
from searchspace.contract import Context, Primitive, given
from searchspace.cost import Cost, Shape, kept, linear, matmul
from searchspace.primitives.attention.heads import check_heads, merge, split
from searchspace.registry import primitive


@dataclass(frozen=True, kw_only=True)
class ShawAttentionConfig:
    """`clip`: the distance from which on all are alike. `values`: values carry vectors too, not keys alone."""

    dim: int = given()
    causal: bool = given(False)
    heads: int = 4
    clip: int = 16
    values: bool = True
    bias: bool = False
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_heads(self.dim, self.heads)
        at_least(1, clip=self.clip)
        probability(dropout=self.dropout)

    @property
    def tables(self) -> int:
        return 2 if self.values else 1


@primitive("shaw_attention", ShawAttentionConfig)
class ShawAttention(Primitive):
    """Attention with relative positions; streaming keeps the keys and values of all that was read."""

    def __init__(self, config: ShawAttentionConfig) -> None:
        super().__init__()
        self.config = config
        D = config.dim // config.heads
        self.query_key_value = nn.Linear(config.dim, 3 * config.dim, bias=config.bias)
        self.output = nn.Linear(config.dim, config.dim, bias=config.bias)
        # As wide as the projected keys and values that they are added to.
        self.tables = nn.Parameter(torch.randn(config.tables, 2 * config.clip + 1, D) * config.dim**-0.5)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        slot = context.slot(causal=self.config.causal)
        q, k, v = (split(part, self.config.heads) for part in self.query_key_value(x).chunk(3, dim=2))
        if slot is not None:
            k, v = (torch.cat([slot[name], new], dim=2) if slot else new.clone() for name, new in (("k", k), ("v", v)))
            slot["k"], slot["v"] = k, v
        out = relative_attention(
            q,
            k,
            v,
            self.tables[0],
            self.tables[1] if self.config.values else None,
            causal=self.config.causal,
            keys=context.padding,
            dropout=self.config.dropout if self.training else 0.0,
        )
        return self.output(merge(out))

    @classmethod
    def cost(cls, config: ShawAttentionConfig, shape: Shape) -> Cost:
        """The plain form, which keeps the weights of every pair; each query meets every row of a table once."""
        C, D, T = config.dim, config.dim // config.heads, shape.length
        rows, states = 2 * config.clip + 1, shape.batch * config.heads
        read = config.clip + 1 if config.causal else rows
        streamed = 2 * shape.rows * C if config.causal else 0
        masks = T * T * (2 if config.causal else 1 + config.tables)  # of the clipped sides, and of the future
        return (
            linear(shape, C, 3 * C, bias=config.bias)
            + matmul(T, D, 2 * T, count=states)
            + matmul(states * T, D, read, count=config.tables)
            + kept(shape, 4 * shape.rows * C + states * T * (T + (read if config.values else 0)))  # queries twice
            + Cost(activation_bytes=masks)
            + linear(shape, C, C, bias=config.bias)
            + Cost(parameters=config.tables * rows * D, state_bytes=streamed * shape.element_bytes)
        )
