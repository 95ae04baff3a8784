"""Sparse attention: each position reads about sqrt(T) positions, some nearby and some that summarise the rest.

Formula: softmax(Q K^T / sqrt(D)) V over A1 and A2, strided: A1 = {i - l + 1 .. i}, A2 = {i, i - l, i - 2 l, ..}, fixed:
A1 = the positions of the block of i, A2 = the last c positions of every block

Child et al. 2019, "Generating Long Sequences with Sparse Transformers", https://arxiv.org/abs/1904.10509, section 4. A1
and A2 are two sets of earlier positions (see `sparse_pattern`). Through both sets, information from any earlier
position arrives in two steps. "union" reads both under one softmax, with each key once. "heads" lets the first half of
the heads read A1 and the others A2. "first" and "second" read one set only, so that layers can alternate if the body
lists them. B batch, T time, H heads, D width of one head, C = H * D model width, l the stride, c the summary, N = T / l
blocks.

Work and memory grow as T (l + T / l) for strided, T (l + c T / l) for fixed. Streaming keeps what later positions may
read. strided: all keys and values, or the last l - 1 for "first". fixed: the summaries and the incomplete block.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from kernels.attention.attention import attention, masked_attention
from kernels.sparse_attention.block_sparse_attention import block_sparse_attention, by_distance, distances
from kernels.sparse_attention.gathered import biased_attention
from kernels.sparse_attention.sliding_window_attention import sliding_window_attention
from kernels.sparse_attention.strided_attention import strided_attention
from searchspace.checks import at_least, probability
from searchspace.contract import Capabilities, Context, Primitive, given
from searchspace.cost import Cost, Shape, kept, linear, matmul, state
from searchspace.primitives.attention.heads import check_heads, merge, places, split
from searchspace.primitives.sparse_attention.sparse_pattern import Part, SparsePattern
from searchspace.primitives.sparse_attention.windows import window_cost
from searchspace.published import Published
from searchspace.registry import primitive
from searchspace.rotation import Positioned


@dataclass(frozen=True, kw_only=True)
class SparseAttentionConfig(Positioned):
    """`pattern`: which of the two published patterns is used.
    `stride`: l, the stride, or the length of a block of the fixed pattern.
    `summary`: c, number of summary positions of each block of the fixed pattern.
    `composition`: how the two sets of positions are read: under one softmax (union), each by half of the heads (heads),
    or only one of them (first, second).
    `summary_by_head`: whether heads of the fixed pattern read different summary positions.
    `summary_runs`: number of different summaries that heads of the fixed pattern read in turn; null takes l // c.
    `inclusive`: whether the strided pattern reads l + 1 positions, as in the paper's formula.

    Raises ValueError if heads does not divide dim, the stride or the summary is below 1, a fixed summary is longer than
    the stride, there are more summaries than fit or without `summary_by_head`, one head should read two sets, or the
    dropout is not a probability.
    """

    dim: int = given()
    heads: int = 4
    pattern: Literal["strided", "fixed"] = "strided"
    stride: int = 64
    summary: int = 8
    composition: Literal["union", "heads", "first", "second"] = "union"
    summary_by_head: bool = False
    summary_runs: int | None = None
    inclusive: bool = False
    bias: bool = False
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_heads(self.dim, self.heads)
        probability(dropout=self.dropout)
        at_least(1, stride=self.stride, summary=self.summary, summary_runs=self.summary_runs)
        if self.pattern == "fixed" and self.summary > self.stride:
            raise ValueError(
                f"summary must be at most stride, but got summary={self.summary}, stride={self.stride}: it is a part "
                "of each block of stride positions."
            )
        if (runs := self.summary_runs or 1) > 1:
            if self.pattern != "fixed" or not self.summary_by_head:
                raise ValueError(
                    f"summary_runs={runs} needs heads that read different summaries; set pattern: fixed and "
                    "summary_by_head: true."
                )
            if runs > self.stride // self.summary:
                raise ValueError(
                    f"summary_runs must be at most {self.stride // self.summary}, the number of summaries of "
                    f"{self.summary} positions in a block of {self.stride}, but got {runs}."
                )
        if self.composition == "heads" and self.heads == 1:
            raise ValueError("composition='heads' needs two heads or more, but got heads=1.")

    @property
    def reads(self) -> SparsePattern:
        """The pattern of positions that are read."""
        return SparsePattern(
            name=self.pattern,
            stride=self.stride,
            summary=self.summary,
            inclusive=self.inclusive,
            runs=self._runs,
        )

    @property
    def _runs(self) -> int:
        """The number of runs of summary positions that the heads read in turn."""
        if not self.summary_by_head or self.pattern != "fixed":
            return 1
        return self.summary_runs or self.stride // self.summary

    @property
    def parts(self) -> list[tuple[Part, range]]:
        """The sets of positions, each with the heads that read it."""
        if self.composition != "heads":
            return [(self.composition, range(self.heads))]
        half = self.heads // 2
        return [("first", range(half)), ("second", range(half, self.heads))]


@primitive(
    "sparse_attention",
    SparseAttentionConfig,
    published=Published(
        paper={"the strided A1 is the last l positions, as in the figures; the formula has l + 1": "inclusive: true"},
        code=("openai/sparse_attention",),
        released={
            "strided: one layer reads the last l positions, another every l-th": "composition: first",
            "fixed: heads read num_verts different summaries in turn": (
                "pattern: fixed, stride: 128, summary: 32, summary_by_head: true, summary_runs: 2"
            ),
        },
    ),
)
class SparseAttention(Primitive):
    """Attention over the two sets of a Sparse Transformer. It never looks ahead."""

    capabilities = Capabilities(bidirectional=False, turned=True)

    def __init__(self, config: SparseAttentionConfig) -> None:
        super().__init__()
        self.config = config
        self.pattern = config.reads
        self.query_key_value = nn.Linear(config.dim, 3 * config.dim, bias=config.bias)
        self.output = nn.Linear(config.dim, config.dim, bias=config.bias)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """x: [B, T, C] -> [B, T, C]."""
        slot = context.slot(self)
        q, k, v = (split(part, self.config.heads) for part in self.query_key_value(x).chunk(3, dim=2))
        if context.position is not None:
            positions = places(x, context)
            q, k = context.position.rotate(q, positions), context.position.rotate(k, positions)
        outs = [self._part(part, heads, q, k, v, slot, context) for part, heads in self.config.parts]
        return self.output(merge(torch.cat(outs, dim=1) if len(outs) > 1 else outs[0]))

    def _part(
        self,
        part: Part,
        heads: range,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        slot: dict[str, Tensor] | None,
        context: Context,
    ) -> Tensor:
        """The result of `heads`, [B, heads, T, D], for one set."""
        start = context.streams.length if context.streams else 0
        q, k, v = (x[:, heads.start : heads.stop] for x in (q, k, v))
        table = self._table(start + q.shape[2], context, q.device)
        reading = _Reading(self.pattern, part, heads, table, self.config.dropout if self.training else 0.0)
        if slot is None:
            return reading.parallel(q, k, v, context.padding)
        return reading.piece(q, k, v, slot, start)

    def _table(self, length: int, context: Context, device: torch.device) -> Tensor | None:
        """The bias by the distance i - j: [H, n], where n is at least the length and the window."""
        if context.position is None:
            return None
        steps = torch.arange(max(length, self.pattern.window), device=device)
        bias = context.position.bias(self.config.heads, steps[-1:], steps)
        return None if bias is None else bias[:, 0].flip(1)

    @classmethod
    def states(cls, config: SparseAttentionConfig) -> Mapping[str, str]:
        axes = {heads.start: "B H W D" if part == "first" else "B H T D" for part, heads in config.parts}
        return {f"{name}{start}": each for start, each in axes.items() for name in ("k", "v")}

    @classmethod
    def cost(cls, config: SparseAttentionConfig, shape: Shape) -> Cost:
        """Scores are counted block by block, including masked ones. Activations are those that a fused kernel keeps."""
        C, D = config.dim, config.dim // config.heads
        cost = linear(shape, C, 3 * C, bias=config.bias) + linear(shape, C, C, bias=config.bias)
        for part, heads in config.parts:
            held = config.reads.held_count(part, shape.length)
            kept_numbers = 2 * held * len(heads) * D
            grown = 0 if part == "first" else kept_numbers
            cost += _part_cost(config.reads, part, len(heads), D, shape)
            cost += state(shape, kept_numbers - grown, growing=grown)
        if len(config.parts) > 1:
            cost += kept(shape, shape.rows * C)  # the concatenated results
        return cost


@dataclass(frozen=True)
class _Reading:
    """One set of positions, read by some of the heads."""

    pattern: SparsePattern
    part: Part
    heads: range
    table: Tensor | None
    dropout: float

    def parallel(self, q: Tensor, k: Tensor, v: Tensor, padding: Tensor | None) -> Tensor:
        """q, k, v: [B, heads, T, D] -> the same shape."""
        T, stride = q.shape[2], self.pattern.stride
        bias = None if self.table is None else self.table[self.heads.start : self.heads.stop]
        if is_short(T, stride):
            steps = torch.arange(T, device=q.device)
            return self.dense(q, k, v, steps, steps[None], padding)
        if self.pattern.name == "fixed":
            return self._fixed(q, k, v, padding, bias)
        if self.part == "union":
            near = None if bias is None else bias[:, :T]
            return strided_attention(q, k, v, stride=stride, keys=padding, bias=near, dropout=self.dropout)
        if self.part == "first":
            near = None if bias is None else bias[:, : self.pattern.window].flip(1)
            return sliding_window_attention(
                q, k, v, window=self.pattern.window, causal=True, keys=padding, bias=near, dropout=self.dropout
            )
        return self._columns(q, k, v, padding, bias)

    def _columns(self, q: Tensor, k: Tensor, v: Tensor, padding: Tensor | None, bias: Tensor | None) -> Tensor:
        """The strided A2: positions with the same remainder form one sequence."""
        (B, H, T, D), stride = q.shape, self.pattern.stride

        def columns(x: Tensor) -> Tensor:  # [B, H, T, D] -> [B * l, H, N, D]
            rows = F.pad(x, (0, 0, 0, -T % stride)).unflatten(2, (-1, stride))
            return rows.permute(0, 3, 1, 2, 4).flatten(0, 1)

        keys = None if padding is None else columns(padding[:, None, :, None])[:, 0, :, 0]
        near = None
        if bias is not None:
            n = torch.arange(-(-T // stride), device=q.device)
            near = bias[:, ((n[:, None] - n) * stride).clamp(min=0)]
        out = attention(columns(q), columns(k), columns(v), causal=True, keys=keys, bias=near, dropout=self.dropout)
        return out.unflatten(0, (B, stride)).permute(0, 2, 3, 1, 4).reshape(B, H, -1, D)[:, :, :T]

    def _fixed(self, q: Tensor, k: Tensor, v: Tensor, padding: Tensor | None, bias: Tensor | None) -> Tensor:
        T, stride, piece = q.shape[2], self.pattern.stride, self.pattern.piece
        blocks, allowed = self.pattern.lists(self.part, T, self._numbers(q.device))
        rest = -T % stride  # whole blocks of keys; no query reads beyond the end, so no extra mask is needed
        k, v = (F.pad(x, (0, 0, 0, rest)) for x in (k, v))
        near = None if bias is None else by_distance(bias, -distances(blocks, rows=stride, columns=piece))
        return block_sparse_attention(
            q, k, v, blocks, rows=stride, columns=piece, allowed=allowed, bias=near, dropout=self.dropout,
            keys=None if padding is None else F.pad(padding, (0, rest)),
        )  # fmt: skip

    def piece(self, q: Tensor, k: Tensor, v: Tensor, slot: dict[str, Tensor], start: int) -> Tensor:
        """The next positions of a stream, block by block. The slot keeps what later positions may read."""
        names = f"k{self.heads.start}", f"v{self.heads.start}"
        if not start:
            slot.update(zip(names, self._kept(k, v, torch.arange(q.shape[2])[None], q.shape[2]), strict=True))
            return self.parallel(q, k, v, None)
        outs = []
        for at in _cuts(start, q.shape[2], self.pattern.stride):
            i = torch.arange(start, start + q.shape[2])[at]
            j = self.pattern.held(self.part, int(i[0]), self.heads)
            j = torch.cat([j, i.expand(len(j), -1)], dim=1)
            near = [torch.cat([slot[name], new[:, :, at]], dim=2) for name, new in zip(names, (k, v), strict=True)]
            outs.append(self.dense(q[:, :, at], near[0], near[1], i.to(q.device), j.to(q.device), None))
            slot.update(zip(names, self._kept(near[0], near[1], j, int(i[-1]) + 1), strict=True))
        return torch.cat(outs, dim=2)

    def _kept(self, k: Tensor, v: Tensor, positions: Tensor, length: int) -> tuple[Tensor, Tensor]:
        """Of the keys and values at `positions`, [1 or heads, n], those that are still needed after
        `length` positions.
        """
        held = self.pattern.held(self.part, length, self.heads)
        index = torch.searchsorted(positions.expand(len(held), -1).contiguous(), held).to(k.device)
        index = index[None, :, :, None].expand(len(k), k.shape[1], -1, k.shape[3])
        return k.gather(2, index), v.gather(2, index)

    def dense(self, q: Tensor, k: Tensor, v: Tensor, i: Tensor, j: Tensor, padding: Tensor | None) -> Tensor:
        """Queries at positions i: [T], at most one block, over keys at positions j: [1 or heads, n]."""
        allowed = self.pattern.reads(self.part, i[:, None], j[:, None], self._numbers(q.device)[:, None, None])[None]
        if padding is not None:
            allowed = allowed & padding[:, None, None]
        if self.table is None:
            return masked_attention(q, k, v, allowed, None, dropout=self.dropout)
        table = self.table[self.heads.start : self.heads.stop]
        bias = by_distance(table, (i[:, None] - j[:, None])[None])
        return biased_attention(q, k, v, allowed, bias, self.dropout)

    def _numbers(self, device: torch.device) -> Tensor:
        return torch.arange(self.heads.start, self.heads.stop, device=device)


def is_short(length: int, stride: int) -> bool:
    """Whether all positions are in one block."""
    return stride >= length


def _cuts(start: int, length: int, stride: int) -> list[slice]:
    """`length` positions from `start` on, cut at the ends of blocks."""
    edges = [0, *range(-start % stride or stride, length, stride), length]
    return [slice(first, last) for first, last in pairwise(edges)]


def _part_cost(pattern: SparsePattern, part: Part, heads: int, D: int, shape: Shape) -> Cost:
    T, B, C, stride = shape.length, shape.batch, heads * D, pattern.stride
    blocks = -(-T // stride)
    rows = B * blocks * stride
    if stride >= T:
        mask = T * T * (heads if pattern.runs > 1 and part != "first" else 1)
        return matmul(T, D, 2 * T, count=B * heads) + kept(shape, shape.rows * (3 * C + C + heads) + mask)
    if pattern.name == "fixed":
        keys = pattern.listed(part, T)
        masks = heads if pattern.runs > 1 and part == "second" else 1
        return (
            matmul(stride, D, 2 * keys, count=B * blocks * heads)
            + kept(shape, rows * (2 * C + heads) + 2 * B * blocks * keys * C)  # of the blocks; their keys, values
            + kept(shape, masks * blocks * stride * keys)
        )
    if part == "first":
        return window_cost(shape, width=C, key_value_width=C, heads=heads, window=pattern.window, causal=True)
    if part == "second":
        columns = matmul(blocks, D, 2 * blocks, count=B * stride * heads)
        return columns + kept(shape, rows * (4 * C + heads))
    keys = 2 * stride + blocks - 1
    return (
        matmul(stride, D, 4 * stride, count=B * blocks * heads)
        + matmul(blocks, D, 2 * (blocks - 1), count=B * stride * heads)
        + kept(shape, rows * heads * (keys + blocks - 1))  # weights; those of the columns twice
        + kept(shape, rows * (8 * C) + B * (blocks - 1) * stride * 2 * C)  # queries, windows and columns
        + Cost(activation_bytes=blocks * stride * keys)  # the mask
    )
