"""Softmax attention of one query over keys and values that lie in parts, as a stream keeps them.

Keys need not be copied side by side for it: at 16,384 positions that copy takes eight times the attention. It is
`kernels.attention.decode_attention`, tuned as that is, for the parts that a stream keeps: all it has read, and the
newest.
B batch, H query heads, G key and value heads (H a multiple of G), L keys of a part, Tk keys in all, D width of a head.
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
    """q: [B, H, 1, D], parts: [B, G, L, D] each, in order -> [B, H, 1, D]; bias: [H, 1, Tk], added to scaled scores.

    The query reads every key. `dropout`, `scale`: as for `kernels.attention.attention`. More than two parts are
    copied side by side, and so they are for dropout.
    """
    if q.shape[2] != 1:
        raise ValueError(f"A step has one query, but got {q.shape[2]}: use kernels.attention.attention for more.")
    if len(parts) <= 2 and not dropout:
        return decode_attention(q, *parts[0], bias=bias, scale=scale, newest=parts[1] if len(parts) == 2 else None)
    k, v = (torch.cat(tensors, dim=2) for tensors in zip(*parts, strict=True))
    return attention(q, k, v, bias=bias, dropout=dropout, scale=scale)
