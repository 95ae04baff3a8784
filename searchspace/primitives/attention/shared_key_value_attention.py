"""Attention that reads the keys and values of an earlier layer, which alone computes and keeps them.

Formula: softmax(Q K_l^T / sqrt(D)) V_l, K_l and V_l those of the last layer before it with `keys: own`

Brandon et al. 2024, "Reducing Transformer Key-Value Cache Size with Cross-Layer Attention",
https://arxiv.org/abs/2405.12981, section 3; with one owner for the second half of the depth it is the cross-decoder of
Sun et al. 2024, "You Only Cache Once", https://arxiv.org/abs/2405.05254. `keys: own` writes its keys and values into
the lanes `keys` and `values`; blocks with `keys: shared` read them, and have a query and an output map only. While
streaming they read the state of the owner, so it is kept once. B batch, T time, H heads, G key and value heads, D width
of one head, C = H * D model width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from kernels.attention.attention import attention
from searchspace.contract import Capabilities, Context, Primitive, given
from searchspace.cost import Cost, Shape, kept, linear, matmul
from searchspace.primitives.attention.attention import Attention, AttentionConfig
from searchspace.primitives.attention.heads import check_heads, merge, places, split
from searchspace.primitives.attention.kept_keys import KEPT, attend_to_kept, bias_of_kept, pairs, remember
from searchspace.published import Published
from searchspace.registry import primitive
from searchspace.rotation import Positioned


@dataclass(frozen=True, kw_only=True)
class SharedKeyValueAttentionConfig(Positioned):
    """`key_value_heads`: number of key and value heads; null takes as many as heads.
    `keys`: whether keys and values are its own and serve later blocks too (own), or those of an earlier block (shared).

    Raises ValueError if the numbers of heads do not divide the width.
    """

    dim: int = given()
    causal: bool = given(False)
    heads: int = 4
    key_value_heads: int | None = None
    keys: Literal["own", "shared"] = "own"
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


@primitive("shared_key_value_attention", SharedKeyValueAttentionConfig, published=Published())
class SharedKeyValueAttention(Primitive):
    """Attention over its own or shared keys and values. Streaming keeps those of the owner."""

    capabilities = Capabilities(turned=True)

    def __init__(self, config: SharedKeyValueAttentionConfig) -> None:
        super().__init__()
        self.config = config
        own, width = config.keys == "own", config.plain.key_value_width
        self.query = nn.Linear(config.dim, config.dim, bias=config.bias)
        self.key_value = nn.Linear(config.dim, 2 * width, bias=config.bias) if own else None
        self.output = nn.Linear(config.dim, config.dim, bias=config.bias)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """x: [B, T, C] -> [B, T, C]. Raises ValueError if it shares, and no block before it has written its keys."""
        config, position, queries = self.config, context.position, places(x, context)
        q = split(self.query(x), config.heads)
        q = q if position is None else position.rotate(q, queries)
        streams, slot = context.streams, context.slot(self, causal=config.causal) if self.key_value else None
        if self.key_value is not None:
            k, v = (split(part, config.plain.groups) for part in self.key_value(x).chunk(2, dim=2))  # [B, G, T, D]
            k = k if position is None else position.rotate(k, queries)
            context.write("keys", k, "B G T D", module=self)
            context.write("values", v, "B G T D")
            if slot is not None:
                remember(slot, k, v)
        k, v = context.read("keys"), context.read("values")
        if streams is not None:
            parts = pairs(streams.kept(context.lanes["keys"].module))
            bias = bias_of_kept(context, config.heads, queries, parts)
            return self.output(merge(attend_to_kept(q, parts, bias=bias)))
        bias = None if position is None else position.bias(config.heads, queries, queries)
        return self.output(merge(attention(q, k, v, causal=config.causal, keys=context.padding, bias=bias)))

    @classmethod
    def reads(cls, config: SharedKeyValueAttentionConfig) -> tuple[str, ...]:
        return () if config.keys == "own" else ("keys", "values")

    @classmethod
    def writes(cls, config: SharedKeyValueAttentionConfig) -> tuple[str, ...]:
        return ("keys", "values") if config.keys == "own" else ()

    @classmethod
    def states(cls, config: SharedKeyValueAttentionConfig) -> Mapping[str, str]:
        return KEPT if config.keys == "own" else {}

    @classmethod
    def cost(cls, config: SharedKeyValueAttentionConfig, shape: Shape) -> Cost:
        """A block that shares has no keys and values of its own: neither their map, nor their state."""
        if config.keys == "own":
            return Attention.cost(config.plain, shape)
        C, T, H = config.dim, shape.length, config.heads
        return (
            linear(shape, C, C, bias=config.bias)
            + matmul(T, C // H, 2 * T, count=shape.batch * H)
            + kept(shape, shape.rows * (C + H))
            + linear(shape, C, C, bias=config.bias)
        )
