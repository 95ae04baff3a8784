"""Attention whose values are mixed with those of the first layer, so that deep layers still see the tokens.

Formula: softmax(Q K^T / sqrt(D)) ((1 - m) V + m V_1), m = sigmoid(w), V_1 the values of the first layer

Zhou et al. 2024, "Value Residual Learning For Alleviating Attention Concentration In Transformers",
https://arxiv.org/abs/2410.17897, section 3.1, with a learned mix for each block. `values: first` writes its values into
the lane `values`; later blocks with `values: mixed` read them. B batch, T time, H heads, G key and value heads, D width
of one head, C = H * D model width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from kernels.attention.attention import attention
from searchspace.contract import Capabilities, Context, Primitive, given
from searchspace.cost import Cost, Shape, kept
from searchspace.primitives.attention.attention import Attention, AttentionConfig
from searchspace.primitives.attention.heads import check_heads, merge, places, split
from searchspace.primitives.attention.kept_keys import KEPT, attend_to_kept, bias_of_kept, remember
from searchspace.published import Published
from searchspace.registry import primitive
from searchspace.rotation import Positioned


@dataclass(frozen=True, kw_only=True)
class ValueResidualAttentionConfig(Positioned):
    """`key_value_heads`: number of key and value heads; null takes as many as heads.
    `values`: whether the values are its own and go to later blocks (first), or are mixed with those (mixed).

    Raises ValueError if the numbers of heads do not divide the width.
    """

    dim: int = given()
    causal: bool = given(False)
    heads: int = 4
    key_value_heads: int | None = None
    values: Literal["first", "mixed"] = "first"
    bias: bool = False

    def __post_init__(self) -> None:
        check_heads(self.dim, self.heads, self.key_value_heads)

    @property
    def plain(self) -> AttentionConfig:
        """Attention of the same sizes."""
        return AttentionConfig(
            dim=self.dim,
            causal=self.causal,
            heads=self.heads,
            key_value_heads=self.key_value_heads,
            bias=self.bias,
        )


@primitive(
    "value_residual_attention",
    ValueResidualAttentionConfig,
    published=Published(paper={"the weights of the two values sum to one": ""}),
)
class ValueResidualAttention(Primitive):
    """Attention with a value residual. Streaming keeps all keys, and the mixed values."""

    capabilities = Capabilities(turned=True)

    def __init__(self, config: ValueResidualAttentionConfig) -> None:
        super().__init__()
        self.config = config
        width = config.plain.key_value_width
        self.query = nn.Linear(config.dim, config.dim, bias=config.bias)
        self.key_value = nn.Linear(config.dim, 2 * width, bias=config.bias)
        self.mix = nn.Parameter(torch.zeros(())) if config.values == "mixed" else None
        self.output = nn.Linear(config.dim, config.dim, bias=config.bias)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """x: [B, T, C] -> [B, T, C]. Raises ValueError if it mixes, and no block before it has written its values."""
        config, position = self.config, context.position
        slot, queries = context.slot(self, causal=config.causal), places(x, context)
        q = split(self.query(x), config.heads)
        k, v = (split(part, config.plain.groups) for part in self.key_value(x).chunk(2, dim=2))  # each [B, G, T, D]
        if self.mix is None:
            context.write("values", v, "B G T D")
        else:
            v = torch.lerp(v, context.read("values"), self.mix.sigmoid().to(v.dtype))
        if position is not None:
            q, k = position.rotate(q, queries), position.rotate(k, queries)
        if slot is not None:
            parts = remember(slot, k, v)
            bias = bias_of_kept(context, config.heads, queries, parts)
            return self.output(merge(attend_to_kept(q, parts, bias=bias)))
        bias = None if position is None else position.bias(config.heads, queries, queries)
        return self.output(merge(attention(q, k, v, causal=config.causal, keys=context.padding, bias=bias)))

    @classmethod
    def reads(cls, config: ValueResidualAttentionConfig) -> tuple[str, ...]:
        return ("values",) if config.values == "mixed" else ()

    @classmethod
    def writes(cls, config: ValueResidualAttentionConfig) -> tuple[str, ...]:
        return ("values",) if config.values == "first" else ()

    @classmethod
    def states(cls, config: ValueResidualAttentionConfig) -> Mapping[str, str]:
        return KEPT

    @classmethod
    def cost(cls, config: ValueResidualAttentionConfig, shape: Shape) -> Cost:
        """Mixing keeps the difference of the values, for the gradient of its weight."""
        found = Attention.cost(config.plain, shape)
        if config.values == "first":
            return found
        return found + Cost(parameters=1) + kept(shape, shape.rows * config.plain.key_value_width)
