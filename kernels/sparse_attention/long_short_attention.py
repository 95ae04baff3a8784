"""Attention over near positions and over compressed far positions, under one softmax.

Zhu et al. 2021, "Long-Short Transformer", https://arxiv.org/abs/2107.02192, section 3, not causal: the sequence is cut
into segments of W positions. A query reads its own segment, W / 2 positions to each side of it, and S vectors that
represent the whole sequence. B batch, H heads, T time, S vectors, D width of one head. A causal query reads bands; see
`kernels.sparse_attention.banded_attention`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from kernels.attention.attention import masked_attention


@dataclass(frozen=True)
class Segments:
    """How a sequence is cut: `count` segments of `rows` queries, each reading `columns` near keys."""

    count: int
    rows: int
    columns: int


def segments(length: int, window: int) -> Segments:
    """The cut of `length` positions; it decides the work: count * rows * (columns + vectors) scores."""
    if length <= window:  # one segment, which needs no other keys than those that exist
        return Segments(1, length, length)
    return Segments(-(-length // window), window, 2 * window)


def long_short_attention_reference(
    q: Tensor, k: Tensor, v: Tensor, far_k: Tensor, far_v: Tensor, *, window: int, keys: Tensor | None = None
) -> Tensor:
    """The definition, one query after the other; arguments as for `long_short_attention`."""
    wide = torch.promote_types(q.dtype, torch.float32)
    real = torch.ones(q.shape[0], q.shape[2], dtype=torch.bool, device=q.device) if keys is None else keys
    rows = []
    for i in range(q.shape[2]):
        first = i // window * window
        near = slice(max(0, first - window // 2), first + window + window // 2)
        K, V = (torch.cat(parts, dim=2).to(wide) for parts in ((far_k, k[:, :, near]), (far_v, v[:, :, near])))
        allowed = torch.cat([real.any(1, keepdim=True).expand(-1, far_k.shape[2]), real[:, near]], dim=1)
        scores = torch.einsum("bhd,bhkd->bhk", q[:, :, i].to(wide), K) / math.sqrt(q.shape[3])
        weights = scores.exp() * allowed[:, None, :]
        # The denominator is one if there is nothing, so that neither zeros nor their gradients become NaN.
        total = weights.sum(2, keepdim=True)
        rows.append(torch.einsum("bhk,bhkd->bhd", weights / torch.where(total > 0, total, 1), V))
    return torch.stack(rows, dim=2).to(q.dtype)


def long_short_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    far_k: Tensor,
    far_v: Tensor,
    *,
    window: int,
    keys: Tensor | None = None,
    far: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """q, k and v: [B, H, T, D], far_k and far_v: [B, H, S, D] -> [B, H, T, D].

    window: W, even. keys: [B, T], True where a key may be read; a sequence without any gives zeros. far: [B, S], True
    where a vector may be read; it needs `keys`, and without it all vectors of a sequence with keys are read. dropout:
    the share of weights set to zero.
    """
    B, H, T, D = q.shape
    cut = segments(T, window)
    N, R, K, S = cut.count, cut.rows, cut.columns, far_k.shape[2]
    before = (K - R) // 2
    after = N * R + before - T

    def read(far: Tensor, near: Tensor) -> Tensor:
        """[B * N, H, S + K, D], what the queries of a segment read."""
        around = F.pad(near, (0, 0, before, after)).unfold(2, K, R).permute(0, 2, 1, 4, 3)  # [B, N, H, K, D]
        return torch.cat([far[:, None].expand(B, N, H, S, D), around], dim=3).flatten(0, 1)

    allowed = None
    if keys is not None or N > 1:
        real = torch.ones(1, T, dtype=torch.bool, device=q.device) if keys is None else keys
        around = F.pad(real, (before, after)).unfold(1, K, R)  # [B or 1, N, K]
        vectors = real.any(1)[:, None].expand(-1, S) if far is None else far
        allowed = (
            torch.cat([vectors[:, None].expand(-1, N, -1), around], dim=2).expand(B, -1, -1).reshape(B * N, 1, 1, S + K)
        )
    queries = F.pad(q, (0, 0, 0, N * R - T)).view(B, H, N, R, D).transpose(1, 2).flatten(0, 1)
    out = masked_attention(
        queries, read(far_k, k), read(far_v, v), allowed, None, dropout=dropout, may_be_empty=keys is not None
    )
    return out.view(B, N, H, R, D).transpose(1, 2).flatten(2, 3)[:, :, :T]
