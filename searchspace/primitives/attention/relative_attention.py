"""Relative attention with segment recurrence: a segment reads itself and, as its memory, the inputs just before it.

Formula: softmax([(q_i + u) . k_j + (q_i + v) . (R_{i-j} Wr)] / sqrt(D)) V, keys and values of [memory, x]

Dai et al. 2019, "Transformer-XL", https://arxiv.org/abs/1901.02860, sections 3.2 and 3.3. Keys and values are linear
maps of [sg(memory), x] and queries of x, all without bias. Scores depend on content and distance (see
`relative_scores`). The memory holds the newest `memory` inputs before the segment and is empty at first. Its inputs get
no gradient, but Wk and Wv do. In a residual with a norm before its blocks, the memory holds what enters the norm, as in
the released code, so the norm learns from the keys of the memory too.

If all queries read the same number of positions, `mem_len` of the released code counts the query itself: `same_length:
with_query`. transformers starts with a memory of zeros, which queries read: `initial: zeros`.

The T positions are cut into segments of length `segment` from the start of the sequence. So one long input gives the
paper's recurrence, and a `Streams` fed segment by segment gives it too. A bidirectional block treats the whole input as
one segment and has no memory. Positions enter only as distances: the model's position encoding has no effect on this
block.

A stream that started in training mode keeps inputs, as the paper does. One that started in evaluation mode keeps keys
and values: the results are the same, and each input is projected only once. B batch, T time, S segment, M memory, H
heads, D width of one head, C = H * D.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from searchspace.checks import at_least, probability
from searchspace.contract import Context, Primitive, Unnormed, given
from searchspace.cost import Cost, Shape, kept, linear, matmul, state
from searchspace.primitives.attention.distances import check_waves
from searchspace.primitives.attention.heads import check_heads, merge, split
from searchspace.primitives.attention.relative_scores import (
    RelativeScores,
    cut,
    norm_learns_cost,
    parameters_cost,
    reach_back,
    reading_cost,
    remembered_twice,
    segments,
    windows,
)
from searchspace.published import Published
from searchspace.registry import primitive


@dataclass(frozen=True, kw_only=True)
class RelativeAttentionConfig:
    """`segment`: S, number of positions in a segment; null makes one segment of the whole input.
    `memory`: M, number of earlier inputs that a segment can read.
    `clamp`: longer distances count as this one; null for no limit.
    `same_length`: whether each query reads the same number of positions: M positions before it (true), or M positions
    including its own, as in the released code (with_query).
    `initial`: what the memory holds at first: nothing, or zeros.
    `share_biases`: whether all blocks of a model share u and v.
    """

    dim: int = given()
    causal: bool = given(False)
    heads: int = 4
    segment: int | None = 32
    memory: int = 32
    clamp: int | None = None
    same_length: Literal[False, True, "with_query"] = False
    initial: Literal["empty", "zeros"] = "empty"
    share_biases: bool = False
    dropout: float = 0.0

    def __post_init__(self) -> None:
        check_heads(self.dim, self.heads)
        check_waves(self.dim)
        probability(dropout=self.dropout)
        at_least(1, segment=self.segment, clamp=self.clamp)
        at_least(1 if self.same_length == "with_query" else 0, memory=self.memory)

    @property
    def reach(self) -> int:
        """How far back a query reads with `same_length`."""
        return self.memory - 1 if self.same_length == "with_query" else self.memory

    @property
    def zeros(self) -> int:
        """The number of zeros in the memory at first."""
        return self.memory if self.initial == "zeros" and self.causal else 0

    def read(self, length: int) -> int:
        """The number of positions of the current segment after `length` positions; 0 at the start of a segment."""
        return length if self.segment is None else length % self.segment

    @property
    def bounded(self) -> bool:
        """Whether a stream keeps no more than a fixed number of positions."""
        return self.segment is not None or bool(self.same_length)

    def held(self, length: int) -> int:
        """The number of positions that a stream keeps after `length`: those of the current segment and the memory
        before it.
        """
        most = self.reach if self.same_length else self.memory + self.read(length)
        return min(length + self.zeros, most)


def in_segment(config: RelativeAttentionConfig, length: int, more: int) -> int:
    """How many of the next `more` positions, after `length`, complete the current segment or are alone in a new one.

    The others belong to segments that start among them.
    """
    if not config.causal or config.segment is None:
        return more
    missing = config.segment - config.read(length)  # until the segment is complete
    return more if more <= missing else missing % config.segment


def reads(config: RelativeAttentionConfig, queries: int, keys: int, device: torch.device) -> Tensor:
    """[n, K], True where the key is not after the query and, with `same_length`, not too far before it."""
    back = reach_back(queries, keys, device)
    return (back >= 0) & (back <= config.reach) if config.same_length else back >= 0


Pair = Sequence[Tensor]  # keys and values, each [B, H, positions, D]
Distances = Callable[[int, int], Tensor]  # number of queries, number of keys -> [H, D, R]


@primitive(
    "relative_attention",
    RelativeAttentionConfig,
    published=Published(
        code=("kimiyoung/transformer-xl", "transformers"),
        released={
            "with same_length, mem_len counts the query itself": "same_length: with_query",
            "transformers starts with a memory of zeros": "initial: zeros",
        },
    ),
)
class RelativeAttention(Primitive):
    """Attention with relative positions over segments. Streaming keeps the current segment and the memory."""

    def __init__(self, config: RelativeAttentionConfig) -> None:
        super().__init__()
        self.config = config
        self.query = nn.Linear(config.dim, config.dim, bias=False)
        self.key_value = nn.Linear(config.dim, 2 * config.dim, bias=False)
        self.scores = RelativeScores(config.dim, config.heads, clamp=config.clamp, share=config.share_biases)
        self.output = nn.Linear(config.dim, config.dim, bias=False)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """x: [B, T, C] -> [B, T, C]. Raises ValueError if it is not causal and the context is streaming."""
        config, T = self.config, x.shape[1]
        slot = context.slot(self, causal=config.causal)
        start = 0 if context.streams is None else context.streams.length
        left = in_segment(config, start, T)
        entered = context.before_norm(x)
        if left == T:
            whole = remembered = self._heads(self.key_value(x))
        else:
            whole, remembered = (self._heads(y) for y in remembered_twice(entered, self.key_value.weight))
        q = split(self.query(x), config.heads)
        distances: Distances = partial(self.scores.distances, like=q, causal=config.causal)
        if slot is not None:
            most = config.memory + config.segment if config.segment else None
            distances = partial(self.scores.remembered_distances, like=q, most=most, fresh=not slot or "inputs" in slot)
            whole = self._remembered(slot, entered, whole, start)
        elif config.zeros:
            whole = _joined(self._zeros(entered), whole)
        return self.output(merge(self._read(q, whole, remembered, left, distances, context.padding)))

    def _heads(self, y: Tensor) -> Pair:
        """y: [B, T, 2 * C] -> keys and values, [B, H, T, D] each."""
        k, v = (split(half, self.config.heads) for half in y.chunk(2, dim=2))
        return k, v

    def _zeros(self, entered: Unnormed) -> Pair:
        """Keys and values of the zeros in the memory at first: [B, H, zeros, D] each."""
        B, _, C = entered.x.shape
        heads = self._heads(self.key_value(entered.norm(entered.x.new_zeros(1, 1, C))))
        k, v = (y.expand(B, -1, self.config.zeros, -1) for y in heads)
        return k, v

    def _remembered(self, slot: dict[str, Tensor], entered: Unnormed, new: Pair, start: int) -> Pair:
        """The keys and values of the stream so far and of this piece. The slot keeps those that the next piece may
        read, or the inputs before their norm.
        """
        x = entered.x
        keeps_inputs = "inputs" in slot if slot else self.training
        if keeps_inputs:
            past = slot["inputs"] if slot else x.new_zeros(x.shape[0], self.config.zeros, x.shape[2])
            old = self._heads(self.key_value(entered.norm(past)))
        else:
            old = (slot["k"], slot["v"]) if slot else self._zeros(entered)
        k, v = _joined(old, new)
        held = self.config.held(start + x.shape[1])
        if keeps_inputs:
            slot["inputs"] = _kept(torch.cat([past, x], dim=1), held, dim=1)
        else:
            slot["k"], slot["v"] = _kept(k, held, dim=2), _kept(v, held, dim=2)
        return k, v

    def _read(
        self, q: Tensor, whole: Pair, remembered: Pair, left: int, distances: Distances, padding: Tensor | None = None
    ) -> Tensor:
        """q: [B, H, T, D]. whole: keys and values of the past and of these T; remembered: of these T, as a memory."""
        T = q.shape[2]
        past = whole[0].shape[2] - T
        if left == T:
            return self._segment(q, whole, distances, padding)
        begun, present, memory = [], [], []
        for y, m in zip(whole, remembered, strict=True):
            begun.append(y[:, :, : past + left])
            present.append(y[:, :, past + left :])
            before = torch.cat([y[:, :, :past], m[:, :, :left]], dim=2)
            memory.append(before[:, :, max(0, past + left - self.config.memory) :])
        later = [m[:, :, left:] for m in remembered]
        rest = self._segments(q[:, :, left:], memory, present, later, distances, padding)
        if left == 0:
            return rest
        return torch.cat([self._segment(q[:, :, :left], begun, distances), rest], dim=2)

    def _segment(self, q: Tensor, whole: Pair, distances: Distances, padding: Tensor | None = None) -> Tensor:
        """Queries of one segment. The last keys are those of the queries themselves."""
        n, K = q.shape[2], whole[0].shape[2]
        allowed = None if padding is None else padding[:, None, None, :]
        past = K - n
        if allowed is not None and past:
            allowed = F.pad(allowed, (past, 0), value=True)
        if self.config.causal and (n > 1 or self.config.same_length):
            within = padding is None and not self.config.same_length  # then all earlier keys are read
            near = reads(self.config, n, n if within else K, q.device)[None, None]
            allowed = near if allowed is None else allowed & near
        return self._scored(q, whole[0], whole[1], distances(n, K), allowed, padding)

    def _segments(
        self, q: Tensor, memory: Pair, present: Pair, remembered: Pair, distances: Distances, padding: Tensor | None
    ) -> Tensor:
        """Queries of several segments at once, from the start of the first; see `windows`."""
        B, T, S, M = q.shape[0], q.shape[2], self.config.segment, self.config.memory
        assert S is not None
        read = partial(windows, segment=S, memory=M)
        k, v = (read(*parts) for parts in zip(present, memory, remembered, strict=True))
        real = q.new_ones(1, 1, T, 1, dtype=torch.bool) if padding is None else padding[:, None, :, None]
        real = read(real, real.new_ones(real.shape[0], 1, memory[0].shape[2], 1), real).transpose(2, 3)  # [G, 1, 1, K]
        allowed = real & reads(self.config, S, S + M, q.device)
        if padding is None:
            allowed = allowed.repeat(B, 1, 1, 1)
        out = self._scored(cut(q, S).flatten(0, 1), k, v, distances(S, S + M), allowed, padding)
        return out.unflatten(0, (B, -1)).transpose(1, 2).flatten(2, 3)[:, :, :T]

    def _scored(
        self, q: Tensor, k: Tensor, v: Tensor, r: Tensor, allowed: Tensor | None, padding: Tensor | None
    ) -> Tensor:
        dropout = self.config.dropout if self.training else 0.0
        return self.scores(q, k, v, r, allowed, dropout=dropout, may_be_empty=padding is not None)

    @classmethod
    def states(cls, config: RelativeAttentionConfig) -> Mapping[str, str]:
        W = "W" if config.bounded else "T"
        return {"inputs": f"B {W} C", "k": f"B H {W} D", "v": f"B H {W} D"}

    @classmethod
    def cost(cls, config: RelativeAttentionConfig, shape: Shape) -> Cost:
        """Every key of a window is counted, including masked ones."""
        B, T, C = shape.batch, shape.length, config.dim
        whole = in_segment(config, 0, T) == T
        S, M = (T, config.zeros) if whole or config.segment is None else (config.segment, config.memory)
        groups = B * segments(T, S)
        held = config.held(T) if config.causal else 0
        grown = 0 if config.bounded else 2 * held * C
        return (
            linear(shape, C, 3 * C, bias=False)
            + (norm_learns_cost(C, shape) if shape.normed and not whole else Cost())
            + (matmul(1, C, 2 * C, backward=2 if shape.normed else 1) if config.zeros else Cost())
            + parameters_cost(C, config.heads, share=config.share_biases)
            + reading_cost(C, config.heads, shape, groups=groups, queries=S, keys=M + S, causal=config.causal)
            + kept(shape, 2 * groups * (M + S) * C)  # keys and values
            + linear(shape, C, C, bias=False)
            + state(shape, 2 * held * C - grown, growing=grown)
        )


def _joined(old: Pair, new: Pair) -> Pair:
    """Keys and values of both, one after the other."""
    k, v = (torch.cat(parts, dim=2) for parts in zip(old, new, strict=True))
    return k, v


def _kept(y: Tensor, length: int, dim: int) -> Tensor:
    """The last `length` positions, copied if a slice would keep more in memory."""
    y = y.detach()
    return y if y.shape[dim] == length else y.narrow(dim, y.shape[dim] - length, length).clone()
