"""Attention with relative positions: keys and values get a learned vector for their distance from the query.

Formula: score_ij = q_i (k_j + a_{clip(j - i)}) / sqrt(D), out_i = sum_j w_ij (v_j + b_{clip(j - i)}), clip to [-c, c]

Shaw et al. 2018, "Self-Attention with Relative Position Representations", https://arxiv.org/abs/1803.02155, eq. 3-5.
The tables a and b have shape [2 c + 1, D]. All heads of a layer share them. Causal attention never reads their last c
rows. Rotary positions and ALiBi have no effect on this block. B batch, T time, H heads, D width of one head, c clip, C
= H * D model width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from kernels.attention.relative_attention import relative_attention
from searchspace.checks import at_least, probability
from searchspace.contract import Context, Primitive, given
from searchspace.cost import Cost, Shape, kept, linear, matmul, state
from searchspace.primitives.attention.heads import check_heads, merge, split
from searchspace.published import Published
from searchspace.registry import primitive


@dataclass(frozen=True, kw_only=True)
class ShawAttentionConfig:
    """`clip`: c; all larger distances share one vector.
    `values`: whether values get a distance vector too, not only keys.

    Raises ValueError if heads does not divide dim, the clip is below 1, or the dropout is not a probability.
    """

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
        """The number of tables."""
        return 2 if self.values else 1


@primitive(
    "shaw_attention",
    ShawAttentionConfig,
    published=Published(),
)
class ShawAttention(Primitive):
    """Attention with relative positions. Streaming keeps the keys and values of everything read so far."""

    def __init__(self, config: ShawAttentionConfig) -> None:
        super().__init__()
        self.config = config
        D = config.dim // config.heads
        self.query_key_value = nn.Linear(config.dim, 3 * config.dim, bias=config.bias)
        self.output = nn.Linear(config.dim, config.dim, bias=config.bias)
        # Initialised at the scale of the projected keys and values to which they are added.
        self.tables = nn.Parameter(torch.randn(config.tables, 2 * config.clip + 1, D) * config.dim**-0.5)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """x: [B, T, C] -> [B, T, C]. Raises ValueError if it is not causal and the context is streaming."""
        slot = context.slot(self, causal=self.config.causal)
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
    def states(cls, config: ShawAttentionConfig) -> Mapping[str, str]:
        return {"k": "B H T D", "v": "B H T D"}

    @classmethod
    def cost(cls, config: ShawAttentionConfig, shape: Shape) -> Cost:
        """The plain path, which keeps the weights of every pair. Each query is multiplied with every row of a table
        once.
        """
        C, D, T = config.dim, config.dim // config.heads, shape.length
        rows, states = 2 * config.clip + 1, shape.batch * config.heads
        read = config.clip + 1 if config.causal else rows
        streamed = 2 * T * C if config.causal else 0
        masks = T * T * (2 if config.causal else 1 + config.tables)  # clipped distances of each side; the future
        return (
            linear(shape, C, 3 * C, bias=config.bias)
            + matmul(T, D, 2 * T, count=states)
            + matmul(states * T, D, read, count=config.tables)
            + kept(shape, 4 * shape.rows * C + states * T * (T + (read if config.values else 0)))  # queries twice
            + Cost(activation_bytes=masks)
            + linear(shape, C, C, bias=config.bias)
            + Cost(parameters=config.tables * rows * D)
            + state(shape, 0, growing=streamed)
        )
