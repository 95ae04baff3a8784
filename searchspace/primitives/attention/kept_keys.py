"""The cache of keys and values in streaming, and attention over it.

Every step adds one position. If each step appended to one tensor, it would copy all keys, which costs more than the
attention itself. So the newest keys and values are kept separately in `k_new` and `v_new`. When there are enough of
them, they are appended to `k` and `v`. A step then copies T / MANY + MANY / 2 positions on average instead of T, and no
tensor has unused space. Tensors are never changed in place, so a slot can be copied, reordered or differentiated. B
batch, T time, G key and value heads, D width of one head.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.attention.attention import attention
from kernels.attention.decode_attention import Pair, attention_step
from searchspace.contract import Context

# One step on a CPU, 12 heads of 64, 16,384 positions: copies take 50 ms without this and 0.3 ms with it; the attention
# itself takes 6 ms.
MANY = 256


KEPT = dict.fromkeys(("k", "v", "k_new", "v_new"), "B G T D")  # the axes of the cache


def remember(slot: dict[str, Tensor], k: Tensor, v: Tensor) -> list[Pair]:
    """Append the keys and values of a piece, [B, G, T, D] each, to the slot.

    Returns all keys and values so far, in order, as one or two parts.
    """
    if k.shape[2] > 1 or "k" not in slot:
        _join(slot, [*pairs(slot), (k, v)])
    else:
        slot["k_new"], slot["v_new"] = _joined([*pairs(slot)[1:], (k, v)])
        if slot["k_new"].shape[2] >= MANY:
            _join(slot, pairs(slot))
    return pairs(slot)


def attend_to_kept(
    q: Tensor, parts: list[Pair], *, bias: Tensor | None = None, dropout: float = 0.0, scale: float | None = None
) -> Tensor:
    """Attention of the newest T positions over all cached keys.

    q: [B, H, T, D], bias: [H, T, keys] or None -> [B, H, T, D]. parts: the result of `remember`.
    """
    if q.shape[2] == 1:
        return attention_step(q, parts, bias=bias, dropout=dropout, scale=scale)
    k, v = _joined(parts) if len(parts) > 1 else parts[0]
    return attention(q, k, v, causal=True, bias=bias, dropout=dropout, scale=scale)


def bias_of_kept(context: Context, heads: int, queries: Tensor, parts: list[Pair]) -> Tensor | None:
    """The bias that the position encoding adds to the scores of the newest positions: [heads, T, keys], or None.

    queries: [T], the positions of the queries.
    """
    if context.position is None:
        return None
    keys = queries[-1] + torch.arange(1 - count(parts), 1, device=queries.device)
    return context.position.bias(heads, queries, keys)


def count(parts: list[Pair]) -> int:
    """The number of cached keys."""
    return sum(k.shape[2] for k, _ in parts)


def pairs(slot: dict[str, Tensor]) -> list[Pair]:
    """All keys and values of a slot in order, as one or two parts."""
    return [(slot[k], slot[v]) for k, v in (("k", "v"), ("k_new", "v_new")) if k in slot]


def _join(slot: dict[str, Tensor], parts: list[Pair]) -> None:
    slot["k"], slot["v"] = _joined(parts)
    slot.pop("k_new", None)
    slot.pop("v_new", None)


def _joined(parts: list[Pair]) -> Pair:
    """Concatenate the parts along time. It copies, because a slice would keep the whole projection in memory."""
    k, v = (torch.cat(tensors, dim=2).contiguous() for tensors in zip(*parts, strict=True))
    return k, v
