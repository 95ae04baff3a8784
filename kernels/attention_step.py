"""Softmax attention of one query over keys and values that lie in parts, as a stream keeps them.

Vaswani et al. 2017, "Attention Is All You Need", https://arxiv.org/abs/1706.03762, eq. 1, one softmax over the keys of
all parts. Keys need not be copied side by side for it: at 16,384 positions that copy takes eight times the attention.
B batch, H query heads, G key and value heads (H a multiple of G), L keys of a part, Tk keys in all, D width of a head.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

Pair = tuple[Tensor, Tensor]  # keys and values


def attention_step(
    q: Tensor, parts: Sequence[Pair], *, bias: Tensor | None = None, dropout: float = 0.0, scale: float | None = None
) -> Tensor:
    """q: [B, H, 1, D], parts: [B, G, L, D] each, in order -> [B, H, 1, D]; bias: [H, 1, Tk], added to scaled scores.

    The query reads every key. `dropout`, `scale`: as for `kernels.attention`.
    """
    B, H, queries, D = q.shape
    if queries != 1:
        raise ValueError(f"A step has one query, but got {queries}: use kernels.attention for more.")
    G = parts[0][0].shape[1]
    rows = q.reshape(B, G, H // G, D) * (1 / math.sqrt(D) if scale is None else scale)  # heads that share keys
    scores = [rows @ k.transpose(2, 3) for k, _ in parts]
    weights = torch.cat(scores, dim=3) if len(scores) > 1 else scores[0]
    weights = weights.to(torch.promote_types(weights.dtype, torch.float32))
    if bias is not None:
        weights = weights + bias.view(G, H // G, -1)
    weights = F.dropout(weights.softmax(3), dropout).to(parts[0][1].dtype)
    read = weights.split([v.shape[2] for _, v in parts], dim=3)
    outs = [share @ v for share, (_, v) in zip(read, parts, strict=True)]
    return (outs[0] if len(outs) == 1 else torch.stack(outs).sum(0)).view(B, H, 1, D)
