"""Softmax attention over keys and values, with grouped queries, padding, causality and an additive bias.

Vaswani et al. 2017, "Attention Is All You Need", https://arxiv.org/abs/1706.03762, eq. 1: softmax(Q K^T / sqrt(D)) V.
B batch, H query heads, G key and value heads (H a multiple of G), Tq queries, Tk keys, D width of one head.

The causal diagonal is aligned to the bottom right: the last query sees the last key, so Tk - Tq keys are the past of
the first query. A query without any allowed key reads zeros.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F


def attention_reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    keys: Tensor | None = None,
    bias: Tensor | None = None,
    scale: float | None = None,
) -> Tensor:
    """The definition, with the whole matrix of scores; arguments as for `attention`."""
    wide = torch.promote_types(q.dtype, torch.float32)
    groups = q.shape[1] // k.shape[1]
    K, V = (heads.to(wide).repeat_interleave(groups, dim=1) for heads in (k, v))
    scores = q.to(wide) @ K.transpose(2, 3) * (1 / math.sqrt(q.shape[3]) if scale is None else scale)  # [B, H, Tq, Tk]
    if bias is not None:
        scores = scores + bias
    allowed = torch.ones_like(scores, dtype=torch.bool)
    if causal:
        allowed = allowed.tril(scores.shape[3] - scores.shape[2])
    if keys is not None:
        allowed = allowed & keys[:, None, None, :]
    weights = (scores - scores.amax(3, keepdim=True)).exp() * allowed
    # A denominator of one where the row is empty, so that neither zeros nor their gradients become NaN.
    total = weights.sum(3, keepdim=True)
    return (weights / torch.where(total > 0, total, 1) @ V).to(q.dtype)


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    keys: Tensor | None = None,
    bias: Tensor | None = None,
    dropout: float = 0.0,
    scale: float | None = None,
) -> Tensor:
    """q: [B, H, Tq, D], k and v: [B, G, Tk, D] -> [B, H, Tq, D].

    keys: [B, Tk], True where a key may be read. bias: [H, Tq, Tk], added to the scaled scores. dropout: the share of
    weights set to zero. scale: of the scores, 1 / sqrt(D) unless given. Memory is O(Tq + Tk) without `keys` and `bias`,
    else one mask of [B, Tq, Tk] or [H, Tq, Tk].
    """
    queries, length = q.shape[2], k.shape[2]
    if causal and queries > length:
        raise ValueError(f"Causal attention needs a key for every query, but got {queries} queries and {length} keys.")
    causal = causal and queries > 1  # a single query sees every key there is
    if keys is None and bias is None and (not causal or queries == length):
        return F.scaled_dot_product_attention(
            q, k, v, is_causal=causal, dropout_p=dropout, scale=scale, enable_gqa=q.shape[1] != k.shape[1]
        )
    allowed = None if keys is None else keys[:, None, None, :]
    if causal:
        past = torch.ones(queries, length, dtype=torch.bool, device=q.device).tril(length - queries)
        allowed = past[None, None] if allowed is None else allowed & past
    return masked_attention(q, k, v, allowed, bias, dropout=dropout, scale=scale, may_be_empty=keys is not None)


def masked_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    allowed: Tensor | None,
    bias: Tensor | None,
    *,
    dropout: float = 0.0,
    scale: float | None = None,
    may_be_empty: bool = True,
) -> Tensor:
    """Attention under any mask; allowed: [.., 1, .., Tk] of bool, broadcast to the scores; bias: [H, Tq, Tk].

    `may_be_empty` says whether some query may have no key at all; such a row reads zeros and passes no gradient.
    """
    empty = None
    if allowed is not None and may_be_empty:
        # Zeros are what torch gives here on a CPU, but it promises them for no backend, and a NaN would survive in the
        # gradient of a masked result: let an empty row read everything, then drop what it read.
        empty = ~allowed.any(dim=3, keepdim=True)
        allowed = allowed | empty
    mask = allowed
    if bias is not None:
        mask = bias[None].to(q.dtype)
        mask = mask if allowed is None else torch.where(allowed, mask, -math.inf)
    out = F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, dropout_p=dropout, scale=scale, enable_gqa=q.shape[1] != k.shape[1]
    )
    return out if empty is None else out.masked_fill(empty, 0)
