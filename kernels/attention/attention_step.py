"""Softmax attention of one query over keys and values in several parts, as a stream stores them.

The keys need not be copied into one tensor: at 16,384 positions that copy takes eight times as long as the attention.
This is `kernels.attention.decode_attention`, with its tuning, for the parts of a stream: everything read so far, and
the newest position. B batch, H query heads, G key and value heads (H a multiple of G), L keys of a part, Tk keys in
all, D width of a head.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from kernels.attention.attention import attention
from kernels.attention.decode_attention import Pair, decode_attention


def attention_step(
    q: Tensor, parts: Sequence[Pair], *, bias: Tensor | None = None, dropout: float = 0.0, scale: float | None = None
) -> Tensor:
    """q: [B, H, 1, D], parts: [B, G, L, D] each, in order -> [B, H, 1, D].

    The query reads all keys. bias: [H, 1, Tk], added to the scaled scores. `dropout`, `scale`: as for
    `kernels.attention.attention`. With more than two parts, or with dropout, the parts are copied into one tensor.
    Raises ValueError if there is more than one query.
    """
    if q.shape[2] != 1:
        raise ValueError(f"A step takes one query, but got {q.shape[2]}: use kernels.attention.attention for more.")
    if len(parts) <= 2 and not dropout:
        return decode_attention(q, *parts[0], bias=bias, scale=scale, newest=parts[1] if len(parts) == 2 else None)
    k, v = (torch.cat(tensors, dim=2) for tensors in zip(*parts, strict=True))
    return attention(q, k, v, bias=bias, dropout=dropout, scale=scale)
