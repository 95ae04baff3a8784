"""Attention over the last l positions and every l-th position before them, in time and memory O(T * (l + T / l)).

Child et al. 2019, "Generating Long Sequences with Sparse Transformers", https://arxiv.org/abs/1904.10509, section 4.2,
the strided pattern with stride l: position i reads j <= i if i - j < l or i - j is a multiple of l, with one softmax
over the union. The window of l + 1 in the formula of the paper gives the same union, because i - l is a multiple too. B
batch, T time, H query heads, G key and value heads, D width of one head, N = T / l rows of l positions.

If rows of l positions are written below each other, the positions at multiples of l form columns. A row reads itself
and the previous row, a column reads the positions above in it. The two sets of scores are next to each other under one
softmax.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from kernels.attention.attention import attention


def strided_attention_reference(
    q: Tensor, k: Tensor, v: Tensor, *, stride: int, keys: Tensor | None = None, bias: Tensor | None = None
) -> Tensor:
    """The definition, with a mask over all pairs; arguments as for `strided_attention`."""
    (B, H, T, D), G = q.shape, k.shape[1]
    k, v = (heads.repeat_interleave(H // G, dim=1) for heads in (k, v))
    distance = torch.arange(T, device=q.device)[:, None] - torch.arange(T, device=q.device)
    read = (distance >= 0) & ((distance < stride) | (distance % stride == 0)).expand(B, 1, T, T)
    if keys is not None:
        read = read & keys[:, None, None]
    scores = q @ k.transpose(2, 3) / math.sqrt(D)
    if bias is not None:
        scores = scores + bias[:, distance.clamp(min=0)]
    weights = (scores - scores.amax(3, keepdim=True)).exp() * read
    total = weights.sum(3, keepdim=True)
    return weights / torch.where(total > 0, total, 1) @ v


def strided_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    stride: int,
    keys: Tensor | None = None,
    bias: Tensor | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """q: [B, H, T, D], k and v: [B, G, T, D] -> [B, H, T, D].

    keys: [B, T], True where a key may be read. bias: [H, T], added to the scaled scores by the distance i - j. dropout:
    the share of weights set to zero. A query without any key gives zeros.
    """
    (_, H, T, D), G = q.shape, k.shape[1]
    if stride >= T:  # the window covers everything
        steps = torch.arange(T, device=q.device)
        pairs = None if bias is None else bias[:, (steps[:, None] - steps).clamp(min=0)]
        return attention(q, k, v, causal=True, keys=keys, bias=pairs, dropout=dropout)
    if G != H:
        k, v = (heads.repeat_interleave(H // G, dim=1) for heads in (k, v))
    q, k, v = (F.pad(heads, (0, 0, 0, -T % stride)).unflatten(2, (-1, stride)) for heads in (q, k, v))
    near = (q @ _windows(k).transpose(3, 4)) / math.sqrt(D)  # [B, H, N, l, 2 l]
    far = (q.transpose(2, 3) @ _columns(k).transpose(3, 4)) / math.sqrt(D)  # [B, H, l, N, N - 1]
    if bias is not None:
        near, far = (scores + pairs for scores, pairs in zip((near, far), _biases(bias, *q.shape[2:4]), strict=True))
    scores = torch.cat([near, far.transpose(2, 3)], dim=4)
    weights = _softmax(scores, _readable(q.shape[2], stride, keys, q.device), may_be_empty=keys is not None)
    near, far = F.dropout(weights, dropout).to(v.dtype).split([2 * stride, q.shape[2] - 1], dim=4)
    out = near @ _windows(v) + (far.transpose(2, 3) @ _columns(v)).transpose(2, 3)
    return out.flatten(2, 3)[:, :, :T]


def _windows(rows: Tensor) -> Tensor:
    """[B, H, N, l, D] -> [B, H, N, 2 l, D], each row after the previous one, zeros before the first."""
    return torch.cat([F.pad(rows, (0, 0, 0, 0, 1, 0))[:, :, :-1], rows], dim=3)


def _columns(rows: Tensor) -> Tensor:
    """[B, H, N, l, D] -> [B, H, l, N - 1, D]: columns without the last row, which no later row reads."""
    return rows[:, :, :-1].transpose(2, 3)


def _biases(bias: Tensor, count: int, stride: int) -> tuple[Tensor, Tensor]:
    """[H, T] -> [H, 1, l, 2 l] for the windows and [H, 1, N, N - 1] for the columns."""
    place, row = torch.arange(2 * stride, device=bias.device), torch.arange(count, device=bias.device)
    near = place[stride:, None] - place
    far = (row[:, None] - row[:-1]) * stride
    longest = bias.shape[1] - 1
    return bias[:, None, near.clamp(0, longest)], bias[:, None, far.clamp(0, longest)]


def _readable(count: int, stride: int, keys: Tensor | None, device: torch.device) -> Tensor:
    """[1 or B, 1, N, l, 2 l + N - 1], True where a key of the window or the column is read."""
    place, row = torch.arange(2 * stride, device=device), torch.arange(count, device=device)
    distance = place[stride:, None] - place  # [l, 2 l]
    inside = (distance >= 0) & (distance < stride)
    above = (row[:-1] < row[:, None])[:, None].expand(-1, stride, -1)  # [N, l, N - 1]
    if keys is None:
        begun = (row[:, None] > 0) | (place >= stride)  # [N, 2 l]: nothing is before the first row
        return torch.cat([inside & begun[:, None], above], dim=2)[None, None]
    real = F.pad(keys, (0, count * stride - keys.shape[1])).unflatten(1, (count, stride))[:, None, :, :, None]
    near = inside & _windows(real).transpose(3, 4)  # [B, 1, N, l, 2 l]
    return torch.cat([near, above & _columns(real).permute(0, 1, 4, 2, 3)], dim=4)


def _softmax(scores: Tensor, read: Tensor, *, may_be_empty: bool) -> Tensor:
    """Weights that are zero if nothing is read, in float32 or wider; scores and read: [.., keys]."""
    wide = torch.promote_types(scores.dtype, torch.float32)
    # Not -inf: the weights of an empty row, which are dropped, must not be NaN.
    weights = scores.masked_fill(~read, torch.finfo(scores.dtype).min).softmax(dim=4, dtype=wide)
    return weights.masked_fill(~read.any(4, keepdim=True), 0) if may_be_empty else weights
