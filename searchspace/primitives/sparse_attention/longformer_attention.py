"""Longformer attention: all positions read a window and a few global positions; global positions read everything.

Formula: softmax(Q K^T / sqrt(D)) V over |i - j| <= window / 2 and the global positions

Beltagy et al. 2020, "Longformer", https://arxiv.org/abs/2004.05150, section 3.1. The first g positions are global
(`global_at: start`). Or the caller marks them, as in the released code (allenai/longformer, transformers:
`global_attention_mask`). The marked positions may be anywhere and differ between sequences. `global_at: context` reads
them from `Context.global_positions`, at most g in a sequence. Without marks the first g are global. The other positions
read them in addition to their window |i - j| <= window / 2, under one softmax and each key once. The queries of the
global positions, and the keys and values that they read, come from a second set of projections. Both share one output
projection. The causal form, for language models, has no global positions: it is `sliding_window_attention`. B batch, T
time, H heads, D width of one head, C = H * D model width, g global positions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn

from kernels.attention.attention import attention
from kernels.sparse_attention.gathered import biased_attention
from kernels.sparse_attention.sliding_window_attention import Everywhere, reach, sliding_window_attention
from searchspace.checks import at_least, probability
from searchspace.contract import Capabilities, Context, Primitive, given
from searchspace.cost import Cost, Shape, kept, linear, matmul
from searchspace.primitives.attention.heads import check_heads, merge, places, split
from searchspace.primitives.sparse_attention.global_positions import Marks, by_distances
from searchspace.primitives.sparse_attention.windows import check_dilated_heads, dilations, windows_cost
from searchspace.published import Published
from searchspace.registry import primitive
from searchspace.rotation import Positioned


@dataclass(frozen=True, kw_only=True)
class LongformerAttentionConfig(Positioned):
    """`window`: number of positions in the window, half on each side.
    `dilation`: distance between two positions of the window.
    `dilated_heads`: number of heads that are dilated, the last ones; null dilates all.
    `global_tokens`: g, number of global positions; if the context marks them, the maximum for one sequence.
    `global_at`: which positions are global: the first ones (start), or those that `Context.global_positions` marks
    (context).

    Raises ValueError if heads does not divide dim, the window is odd or below 2, the dilated heads are not some of the
    heads, another number is too small, or the dropout is not a probability.
    """

    dim: int = given()
    causal: bool = given(False)
    heads: int = 4
    window: int = 32
    dilation: int = 1
    dilated_heads: int | None = None
    global_tokens: int = 0
    global_at: Literal["start", "context"] = "start"
    bias: bool = True
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_heads(self.dim, self.heads)
        probability(dropout=self.dropout)
        at_least(2, window=self.window)
        at_least(1, dilation=self.dilation)
        at_least(0, global_tokens=self.global_tokens)
        check_dilated_heads(self.dilated_heads, self.heads)
        if self.window % 2:
            raise ValueError(f"window must be even, with half of it on each side, but got window={self.window}.")

    @property
    def dilations(self) -> list[tuple[slice, int]]:
        """The slices of heads with their dilations."""
        return dilations(self.heads, self.dilation, self.dilated_heads)


@primitive(
    "longformer_attention",
    LongformerAttentionConfig,
    published=Published(
        code=("allenai/longformer", "transformers"),
        released={
            "a mask marks global positions anywhere in each sequence": "global_at: context, global_tokens: 8",
            "queries at padding give zeros; here they are not defined": "",
        },
    ),
)
class LongformerAttention(Primitive):
    """Attention in a window and over global positions. It is always bidirectional."""

    capabilities = Capabilities(causal=False, streaming=False, turned=True)

    def __init__(self, config: LongformerAttentionConfig) -> None:
        super().__init__()
        self.config = config
        self.query_key_value = nn.Linear(config.dim, 3 * config.dim, bias=config.bias)
        if config.global_tokens:
            self.global_query = nn.Linear(config.dim, config.dim, bias=config.bias)
            self.global_key_value = nn.Linear(config.dim, 2 * config.dim, bias=config.bias)
        self.output = nn.Linear(config.dim, config.dim, bias=config.bias)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """x: [B, T, C] -> [B, T, C].

        Raises ValueError if the context is streaming, or marks more than g positions of a sequence.
        """
        context.slot(self, causal=False)
        g, T = self.config.global_tokens, x.shape[1]
        if self.config.global_at == "context":
            return self.output(merge(self._marked(x, context)))
        outs = []
        if g:
            outs.append(self._global(x, context))
        if g < T:
            outs.append(self._local(x, context))
        return self.output(merge(torch.cat(outs, dim=2) if len(outs) > 1 else outs[0]))

    def _marked(self, x: Tensor, context: Context) -> Tensor:
        """The results of all positions if the context marks the global ones: [B, H, T, D]."""
        config, padding = self.config, context.padding
        H, marks = config.heads, Marks.of(context, x, config.global_tokens)
        q, k, v = (split(part, H) for part in self.query_key_value(x).chunk(3, dim=2))
        position, table = context.position, None
        if position is not None:
            positions = places(x, context)
            q, k = position.rotate(q, positions), position.rotate(k, positions)
            table = by_distances(position, H, x)
        everywhere = None if marks is None else marks.everywhere(k, v, table)
        keys = padding if marks is None else marks.others(padding)
        outs = []
        for heads, dilation in config.dilations:
            near = self._bias(context, dilation, x.device)
            outs.append(
                sliding_window_attention(
                    q[:, heads], k[:, heads], v[:, heads], window=config.window, causal=False, dilation=dilation,
                    keys=keys, bias=None if near is None else near[heads], dropout=self._dropout,
                    everywhere=None if everywhere is None else everywhere.of_heads(heads),
                )
            )  # fmt: skip
        out = torch.cat(outs, dim=1) if len(outs) > 1 else outs[0]
        if marks is None:
            return out
        q = split(self.global_query(marks.rows(x)), H)
        k, v = (split(half, H) for half in self.global_key_value(x).chunk(2, dim=2))
        if position is not None:
            q, k = position.rotate(q, positions[marks.at]), position.rotate(k, positions)
        if table is None:
            rows = attention(q, k, v, keys=padding, dropout=self._dropout)
        else:
            allowed = None if padding is None else padding[:, None, None]
            rows = biased_attention(q, k, v, allowed, marks.bias_of_rows(table), self._dropout)
        return marks.put(rows, out)

    def _global(self, x: Tensor, context: Context) -> Tensor:
        """The results of the first g positions, which read all positions: [B, H, g, D]."""
        H, g = self.config.heads, self.config.global_tokens
        q = split(self.global_query(x[:, :g]), H)
        k, v = (split(half, H) for half in self.global_key_value(x).chunk(2, dim=2))
        bias = None
        if context.position is not None:
            positions = places(x, context)
            q, k = context.position.rotate(q, positions[:g]), context.position.rotate(k, positions)
            bias = context.position.bias(H, positions[:g], positions)
        return attention(q, k, v, keys=context.padding, bias=bias, dropout=self._dropout)

    def _local(self, x: Tensor, context: Context) -> Tensor:
        """The results of the other positions, which read their windows and the first g positions: [B, H, T - g, D]."""
        config, padding = self.config, context.padding
        g, far = config.global_tokens, None
        q, k, v = (split(part, config.heads) for part in self.query_key_value(x).chunk(3, dim=2))
        if context.position is not None:
            positions = places(x, context)
            q, k = context.position.rotate(q, positions), context.position.rotate(k, positions)
            far = context.position.bias(config.heads, positions[g:], positions[:g]) if g else None
        outs = []
        for heads, dilation in config.dilations:
            near = self._bias(context, dilation, x.device)
            everywhere = None
            if g:
                everywhere = Everywhere(
                    k=k[:, heads, :g],
                    v=v[:, heads, :g],
                    keys=None if padding is None else padding[:, :g],
                    bias=None if far is None else far[None, heads],
                )
            outs.append(
                sliding_window_attention(
                    q[:, heads, g:],
                    k[:, heads, g:],
                    v[:, heads, g:],
                    window=config.window,
                    causal=False,
                    dilation=dilation,
                    keys=None if padding is None else padding[:, g:],
                    bias=None if near is None else near[heads],
                    everywhere=everywhere,
                    dropout=self._dropout,
                )
            )
        return torch.cat(outs, dim=1) if len(outs) > 1 else outs[0]

    def _bias(self, context: Context, dilation: int, device: torch.device) -> Tensor | None:
        """[H, window + 1], the bias by distance."""
        if context.position is None:
            return None
        left, right = reach(self.config.window, False)
        keys = torch.arange(left + 1 + right, device=device) * dilation
        bias = context.position.bias(self.config.heads, keys[left : left + 1], keys)
        return None if bias is None else bias[:, 0]

    @property
    def _dropout(self) -> float:
        return self.config.dropout if self.training else 0.0

    @classmethod
    def cost(cls, config: LongformerAttentionConfig, shape: Shape) -> Cost:
        """Scores are counted tile by tile, including masked ones. Activations are those that a fused kernel keeps."""
        C, g, T = config.dim, min(config.global_tokens, shape.length), shape.length
        cost = linear(shape, C, C, bias=config.bias) + kept(shape, shape.rows * C)  # the output; the input
        rest = T if config.global_at == "context" else T - g  # queries that read a window
        if config.global_tokens:
            cost += _projected(config, shape.batch * g, 1) + _projected(config, shape.rows, 2)
            cost += matmul(g, C // config.heads, 2 * T, count=shape.batch * config.heads)
            # Queries and the input they are computed from, results and normalisers; keys and values. If all positions
            # are global, that input is the block's input, and the output projection already keeps the results.
            own = C + config.heads + (2 * C if rest else 0)
            cost += kept(shape, shape.batch * g * own + 2 * shape.rows * C)
        local = _projected(config, shape.rows, 3)
        if not rest:
            return cost + Cost(parameters=local.parameters)
        marked = config.global_at == "context" and g > 0
        return cost + local + windows_cost(config, replace(shape, length=rest), C, g, own_masks=marked)


def _projected(config: LongformerAttentionConfig, rows: int, count: int) -> Cost:
    """The cost of `count` projections in one product. The input that it keeps is counted where it is computed."""
    C = config.dim
    return matmul(rows, C, count * C) + Cost(parameters=count * (C * C + (C if config.bias else 0)))
