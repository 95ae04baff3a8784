"""Attention to the previous positions, each weighted by a soft mask that falls with distance, in time and memory T * S.

Sukhbaatar et al. 2019, "Adaptive Attention Span in Transformers", https://arxiv.org/abs/1905.07799, section 2.2: a_ij =
m_i(x) e_ij / sum_j m_i(x) e_ij with e_ij = exp(q_i (k_j + p_x) / sqrt(D)) and m_i(x) = clamp((R + z_i - x) / R, 0, 1);
x = i - j - 1 = 0, 1, .., S - 1 is the distance, 0 for the previous position. A query does not read itself. B batch, H
heads, Tq queries, Tk keys, D width of one head, S distances, R ramp.

Computed is a softmax over the positions that the mask leaves, times the mask, divided by its sum plus 1e-8. The
released code (facebookresearch/adaptive-span) takes the softmax over all S positions: `reach`. The difference matters
only if nearly all of that softmax is beyond the span, so that the sum of the rest is as small as 1e-8.

Queries are cut into tiles, and their scores are arranged by distance, because mask, vectors p and softmax depend only
on distances.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from kernels.attention.diagonals import by_distance, by_key
from kernels.sparse_attention.sliding_window_attention import SMALLEST_TILE

EPSILON = 1e-8  # added to the sum of the masked weights


@dataclass(frozen=True)
class SpanTiling:
    """How a sequence is cut: into `count` tiles of `rows` queries. A tile reads `columns` keys, and one query reads
    `width` of them.
    """

    count: int
    rows: int
    columns: int
    width: int


def span_tiling(queries: int, keys: int, span: int, *, zeros: bool) -> SpanTiling:
    """The cut for a number of queries and keys; without `zeros` a query has no more distances than keys before it."""
    width = span if zeros else max(1, min(span, keys - 1))
    rows = min(queries, max(width, SMALLEST_TILE))
    return SpanTiling(count=-(-queries // rows), rows=rows, columns=rows + width - 1, width=width)


def span_attention_reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    places: Tensor,
    z: Tensor,
    *,
    ramp: int,
    zeros: bool,
    reach: bool = False,
    keys: Tensor | None = None,
) -> Tensor:
    """The definition, one query after the other; arguments as for `span_attention`."""
    B, H, Tq, D = q.shape
    past, S = k.shape[2] - Tq, len(places)
    mask = ((ramp + z[..., None] - torch.arange(S, device=q.device)) / ramp).clamp(0, 1).expand(B, H, Tq, S)
    rows = []
    for i in range(Tq):
        summed, total = 0 * q[:, :, i], 0 * q[:, :, i, :1]
        scale = torch.zeros_like(total)  # of the softmax: over all positions, or over what the mask leaves
        for x in range(S):
            j = past + i - x - 1
            if j < 0 and not zeros:
                continue
            key, value = (h[:, :, j] if j >= 0 else torch.zeros_like(q[:, :, 0]) for h in (k, v))
            e = ((q[:, :, i] * (key + places[x])).sum(2, keepdim=True) / math.sqrt(D)).exp()
            if keys is not None and j >= 0:
                e = e * keys[:, None, j, None]
            m = mask[:, :, i, x, None]
            summed, total, scale = summed + m * e * value, total + m * e, scale + (e if reach else (m > 0) * e)
        rows.append(summed / torch.where(scale > 0, total + EPSILON * scale, 1))
    return torch.stack(rows, dim=2)


def span_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    places: Tensor,
    z: Tensor,
    *,
    ramp: int,
    zeros: bool,
    reach: bool = False,
    keys: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """q: [B, H, Tq, D], k and v: [B, H, Tk, D], places: [S, D] -> [B, H, Tq, D]; the last query is at the last key.

    z: the spans, [H, 1] or [B, H, Tq], in positions. ramp: R. zeros: whether positions before the first key are read as
    keys and values of zeros, or not at all. reach: whether the softmax is over all S positions, as in the released
    code. keys: [B, Tk], True where a key may be read. dropout: the share of weights set to zero. A query that reads
    nothing gives zeros.
    """
    Tq, D, Tk = q.shape[2], q.shape[3], k.shape[2]
    tiles = span_tiling(Tq, Tk, len(places), zeros=zeros)
    N, R, W = tiles.count, tiles.rows, tiles.width
    before, after = W - (Tk - Tq), N * R - Tq - 1  # no query reads the last key

    def stretches(heads: Tensor) -> Tensor:
        """[B, H, Tk, D] -> [B, H, N, K, D], the keys of each tile."""
        padded = F.pad(heads, (0, 0, before, after))
        return padded[:, :, None] if N == 1 else padded.unfold(2, tiles.columns, R).transpose(3, 4)

    def tiled(rows: Tensor) -> Tensor:
        """[B, H, Tq, X] -> [B, H, N, R, X]."""
        return F.pad(rows, (0, 0, 0, N * R - Tq)).unflatten(2, (N, R))

    Q = tiled(q / math.sqrt(D))
    near = by_distance(Q @ stretches(k).transpose(3, 4), W)  # [B, H, N, R, W], the oldest first
    scores = near + Q @ places[:W].flip(0).T
    mask = span_mask(tiled(z[..., None]) if z.dim() == 3 else z[:, :, None, None], W, ramp)
    # finite, so that a row without any key is not NaN; its result is dropped below
    nothing = torch.finfo(scores.dtype).min
    if not reach:
        scores = scores.masked_fill(mask == 0, nothing)
    real = _real(keys, Tk, before, zeros=zeros, device=q.device).unfold(1, W, 1)[:, :Tq]  # [B or 1, Tq, W]
    real = F.pad(real, (0, 0, 0, N * R - Tq)).unflatten(1, (N, R))[:, None]
    scores = scores.masked_fill(~real, nothing)
    empty = scores.detach().amax(4, keepdim=True) == nothing
    weights = scores.softmax(4) * mask.to(scores.dtype)
    total = weights.sum(4, keepdim=True) + EPSILON
    out = by_key(F.dropout(weights, dropout), tiles.columns).to(v.dtype) @ stretches(v) / total.to(v.dtype)
    return out.masked_fill(empty, 0).flatten(2, 3)[:, :, :Tq]


def span_mask(z: Tensor, width: int, ramp: int) -> Tensor:
    """m for the distances width - 1, .., 0 and spans z: [.., 1] -> [.., width], in float32 or wider."""
    z = z.to(torch.promote_types(z.dtype, torch.float32))
    distance = torch.arange(width - 1, -1, -1, device=z.device)
    return ((ramp + z - distance) / ramp).clamp(0, 1)


def _real(keys: Tensor | None, length: int, before: int, *, zeros: bool, device: torch.device) -> Tensor:
    """[B or 1, before + Tk - 1]: which keys, and zeros in front of them, may be read."""
    real = torch.ones(1, length, dtype=torch.bool, device=device) if keys is None else keys
    return F.pad(real, (before, -1), value=zeros)
