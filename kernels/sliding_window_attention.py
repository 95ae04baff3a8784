"""Attention in which a query reads only the keys near it, in time and memory of O(T * window).

Beltagy et al. 2020, "Longformer", https://arxiv.org/abs/2004.05150, section 3.1.
B batch, H query heads, G key and value heads, Tq queries, Tk keys, D width of one head.

Query i reads key j when -left <= j - i <= right. Causal: left = window - 1, right = 0, the last `window` positions with
itself. Both ways: left = right = window // 2. Queries are cut into tiles, and a tile reads one stretch of keys.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from kernels.attention import attention_reference, masked_attention

# Queries. Forward and backward at B 8, T 1024, H 4, D 32, float32, one CPU core, window 8: 50 ms with 16, 48 with 32,
# 65 with 64. Of equals the smallest, which does the least work outside the window.
SMALLEST_TILE = 16


def reach(window: int, causal: bool) -> tuple[int, int]:
    """How many keys to the left and to the right of itself a query reads."""
    return (window - 1, 0) if causal else (window // 2, window // 2)


@dataclass(frozen=True)
class Tiling:
    """How a sequence is cut: `count` tiles of `rows` queries, each reading `columns` keys, `left` before its first."""

    count: int
    rows: int
    columns: int
    left: int


def tiling(queries: int, keys: int, window: int, causal: bool) -> Tiling:
    """The cut for so many queries and keys; it decides the work: count * rows * columns scores."""
    left, right = reach(window, causal)
    rows = max(window, SMALLEST_TILE)
    if queries <= rows:  # one tile, which needs no keys beyond those there are
        return Tiling(count=1, rows=queries, columns=keys, left=keys - queries)
    return Tiling(count=-(-queries // rows), rows=rows, columns=left + rows + right, left=left)


def sliding_window_attention_reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    window: int,
    causal: bool,
    keys: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """The definition, one query after the other; arguments as for `sliding_window_attention`."""
    left, right = reach(window, causal)
    past = k.shape[2] - q.shape[2]
    rows = []
    for i in range(q.shape[2]):
        first, last = max(0, past + i - left), min(k.shape[2], past + i + right + 1)
        near = slice(first, last)
        offset = first - (past + i - left)
        rows.append(
            attention_reference(
                q[:, :, i : i + 1],
                k[:, :, near],
                v[:, :, near],
                keys=None if keys is None else keys[:, near],
                bias=None if bias is None else bias[:, None, offset : offset + last - first],
            )
        )
    return torch.cat(rows, dim=2)


def sliding_window_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    window: int,
    causal: bool,
    keys: Tensor | None = None,
    bias: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """q: [B, H, Tq, D], k and v: [B, G, Tk, D] -> [B, H, Tq, D]; the first Tk - Tq keys are the first query's past.

    keys: [B, Tk], True where a key may be read. bias: [H, left + 1 + right], added to the scaled scores by the distance
    j - i, from -left to right.
    """
    B, H, Tq, D = q.shape
    G, Tk = k.shape[1:3]
    tiles = tiling(Tq, Tk, window, causal)
    N, R, K = tiles.count, tiles.rows, tiles.columns
    before = tiles.left - (Tk - Tq)  # keys to add in front; negative: keys beyond reach, to drop
    after = K - R - tiles.left + N * R - Tq

    def stretches(heads: Tensor) -> Tensor:
        """[B, G, Tk, D] -> [B * N, G, K, D], the keys of every tile."""
        padded = F.pad(heads, (0, 0, before, after))
        return padded.unfold(2, K, R).permute(0, 2, 1, 4, 3).reshape(B * N, G, K, D)

    real = torch.ones(1, Tk, dtype=torch.bool, device=q.device) if keys is None else keys
    real = F.pad(real, (before, after)).unfold(1, K, R)  # [B or 1, N, K]
    distance = torch.arange(K, device=q.device) - tiles.left - torch.arange(R, device=q.device)[:, None]  # [R, K]
    left, right = reach(window, causal)
    allowed = real[:, :, None, :] & (distance >= -left) & (distance <= right)  # [B or 1, N, R, K]
    allowed = allowed.expand(B, -1, -1, -1).reshape(B * N, 1, R, K)
    if bias is not None:
        bias = bias[:, (distance + left).clamp(0, left + right)]  # [H, R, K]
    queries = F.pad(q, (0, 0, 0, N * R - Tq)).view(B, H, N, R, D).transpose(1, 2).reshape(B * N, H, R, D)
    out = masked_attention(queries, stretches(k), stretches(v), allowed, bias, dropout=dropout)
    return out.view(B, N, H, R, D).transpose(1, 2).reshape(B, H, N * R, D)[:, :, :Tq]
