"""The keys and values that a stream keeps of all it has read, and how a query of the next piece reads them.

Every step adds one position. To copy all keys beside the new one at every step would cost more than to attend to them,
so the newest lie apart in `k_new` and `v_new`, and join the others in `k` and `v` when they are many: a step copies
T / MANY + MANY / 2 positions instead of T, and no tensor has spare room. What was read stays as it is, so a slot may be
copied, reordered, or differentiated.
B batch, T time, G key and value heads, D width of one head.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.attention.attention import attention
from kernels.attention.attention_step import Pair, attention_step
from searchspace.contract import Context

# A CPU step of 12 heads of 64 at 16,384 positions: 50 ms of copies without, 0.3 with it, beside 6 ms of attention.
MANY = 256


def remember(slot: dict[str, Tensor], k: Tensor, v: Tensor) -> list[Pair]:
    """Add the keys and values of a piece, [B, G, T, D] each; gives all there are, in order, in one part or two."""
    if k.shape[2] > 1 or "k" not in slot:
        _join(slot, [*_pairs(slot), (k, v)])
    else:
        slot["k_new"], slot["v_new"] = _joined([*_pairs(slot)[1:], (k, v)])
        if slot["k_new"].shape[2] >= MANY:
            _join(slot, _pairs(slot))
    return _pairs(slot)


def attend_to_kept(
    q: Tensor, parts: list[Pair], *, bias: Tensor | None = None, dropout: float = 0.0, scale: float | None = None
) -> Tensor:
    """q: [B, H, T, D], the queries of the newest T positions -> [B, H, T, D]; bias: [H, T, keys]."""
    if q.shape[2] == 1:
        return attention_step(q, parts, bias=bias, dropout=dropout, scale=scale)
    k, v = _joined(parts) if len(parts) > 1 else parts[0]
    return attention(q, k, v, causal=True, bias=bias, dropout=dropout, scale=scale)


def bias_of_kept(context: Context, heads: int, queries: Tensor, parts: list[Pair]) -> Tensor | None:
    """What the model's position adds to the scores of `queries`, [T] the newest positions: [heads, T, keys] or None."""
    if context.position is None:
        return None
    keys = queries[-1] + torch.arange(1 - count(parts), 1, device=queries.device)
    return context.position.bias(heads, queries, keys)


def count(parts: list[Pair]) -> int:
    """Of the keys."""
    return sum(k.shape[2] for k, _ in parts)


def _pairs(slot: dict[str, Tensor]) -> list[Pair]:
    return [(slot[k], slot[v]) for k, v in (("k", "v"), ("k_new", "v_new")) if k in slot]


def _join(slot: dict[str, Tensor], parts: list[Pair]) -> None:
    slot["k"], slot["v"] = _joined(parts)
    slot.pop("k_new", None)
    slot.pop("v_new", None)


def _joined(parts: list[Pair]) -> Pair:
    """Copies, position after position: what was read is a slice of a projection, which would be kept with it."""
    k, v = (torch.cat(tensors, dim=2).contiguous() for tensors in zip(*parts, strict=True))
    return k, v
