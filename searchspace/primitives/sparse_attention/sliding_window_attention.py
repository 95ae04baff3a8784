"""Sliding-window attention: softmax attention over nearby positions only, so the cost grows as T * window.

Formula: softmax(Q K^T / sqrt(D)) V over i - window < j <= i if causal, else |i - j| <= window // 2

Beltagy et al. 2020, "Longformer", https://arxiv.org/abs/2004.05150, section 3.1, without global positions. If causal, a
position reads the last `window` positions, including itself. If bidirectional, it reads |i - j| <= window // 2. B
batch, T time, H heads, G key and value heads, D width of one head, C = H * D model width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from kernels.sparse_attention.sliding_window_attention import reach, sliding_window_attention
from searchspace.checks import at_least, probability
from searchspace.contract import Capabilities, Context, Primitive, given
from searchspace.cost import Cost, Shape, linear
from searchspace.primitives.attention.heads import check_heads, merge, places, split
from searchspace.primitives.sparse_attention.windows import check_dilated_heads, dilations, windows_cost
from searchspace.published import Published
from searchspace.registry import primitive
from searchspace.rotation import Positioned


@dataclass(frozen=True, kw_only=True)
class SlidingWindowAttentionConfig(Positioned):
    """`key_value_heads`: number of key and value heads; null takes as many as heads.
    `dilation`: distance between two positions of the window.
    `dilated_heads`: number of heads that are dilated, the last ones; null dilates all.

    Raises ValueError if the numbers of heads do not divide the width, the window or dilation is below 1, the dilated
    heads are not whole groups, or the dropout is not a probability.
    """

    dim: int = given()
    causal: bool = given(False)
    heads: int = 4
    key_value_heads: int | None = None
    window: int = 64
    dilation: int = 1
    dilated_heads: int | None = None
    bias: bool = False
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_heads(self.dim, self.heads, self.key_value_heads)
        probability(dropout=self.dropout)
        at_least(1, window=self.window, dilation=self.dilation)
        check_dilated_heads(self.dilated_heads, self.heads, self.key_value_heads)

    @property
    def groups(self) -> int:
        """The number of key and value heads."""
        return self.key_value_heads or self.heads

    @property
    def key_value_width(self) -> int:
        """The width of the keys of all heads at one position; the values have the same width."""
        return self.groups * (self.dim // self.heads)

    @property
    def past(self) -> int:
        """The distance of the farthest earlier position that a query may read."""
        return (self.window - 1) * self.dilation

    @property
    def dilations(self) -> list[tuple[slice, int]]:
        """The slices of heads with their dilations."""
        return dilations(self.heads, self.dilation, self.dilated_heads)


@primitive(
    "sliding_window_attention",
    SlidingWindowAttentionConfig,
    published=Published(),
)
class SlidingWindowAttention(Primitive):
    """Attention in a window. Streaming keeps the keys and values of the positions that later queries can read."""

    capabilities = Capabilities(turned=True)

    def __init__(self, config: SlidingWindowAttentionConfig) -> None:
        super().__init__()
        self.config = config
        self.query = nn.Linear(config.dim, config.dim, bias=config.bias)
        self.key_value = nn.Linear(config.dim, 2 * config.key_value_width, bias=config.bias)
        self.output = nn.Linear(config.dim, config.dim, bias=config.bias)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """x: [B, T, C] -> [B, T, C]. Raises ValueError if it is not causal and the context is streaming."""
        config = self.config
        slot = context.slot(self, causal=config.causal)
        q = split(self.query(x), config.heads)
        k, v = (split(half, config.groups) for half in self.key_value(x).chunk(2, dim=2))  # each [B, G, T, D]
        if context.position is not None:
            positions = places(x, context)
            q, k = context.position.rotate(q, positions), context.position.rotate(k, positions)
        if slot is not None:
            k, v = self._remember(slot, "k", k), self._remember(slot, "v", v)
        outs = []
        for heads, dilation in config.dilations:
            share = config.heads // config.groups
            near = slice(heads.start // share, heads.stop // share)
            bias = self._bias(context, dilation, x.device)
            outs.append(
                sliding_window_attention(
                    q[:, heads],
                    k[:, near],
                    v[:, near],
                    window=config.window,
                    causal=config.causal,
                    dilation=dilation,
                    keys=context.padding,
                    bias=None if bias is None else bias[heads],
                    dropout=config.dropout if self.training else 0.0,
                )
            )
        return self.output(merge(outs[0] if len(outs) == 1 else torch.cat(outs, dim=1)))

    def _remember(self, slot: dict[str, Tensor], name: str, new: Tensor) -> Tensor:
        """The keys (or values) that the new positions may read. The slot keeps those that later positions may read."""
        near = torch.cat([slot[name], new], dim=2) if slot.get(name) is not None else new
        length = min(near.shape[2], self.config.past)
        # A copy, because a slice would keep the whole piece in memory.
        slot[name] = near.narrow(2, near.shape[2] - length, length).clone()
        return near

    def _bias(self, context: Context, dilation: int, device: torch.device) -> Tensor | None:
        """[H, left + 1 + right], the bias by distance, the same for every query."""
        if context.position is None:
            return None
        left, right = reach(self.config.window, self.config.causal)
        keys = torch.arange(left + 1 + right, device=device) * dilation
        bias = context.position.bias(self.config.heads, keys[left : left + 1], keys)
        return None if bias is None else bias[:, 0]

    @classmethod
    def states(cls, config: SlidingWindowAttentionConfig) -> Mapping[str, str]:
        return {"k": "B H W D", "v": "B H W D"}

    @classmethod
    def cost(cls, config: SlidingWindowAttentionConfig, shape: Shape) -> Cost:
        C, W = config.dim, config.key_value_width
        held = min(shape.length, config.past) if config.causal else 0
        return (
            linear(shape, C, C + 2 * W, bias=config.bias)
            + windows_cost(config, shape, W)
            + linear(shape, C, C, bias=config.bias)
            + Cost(state_bytes=2 * shape.batch * held * W * shape.element_bytes)
        )
