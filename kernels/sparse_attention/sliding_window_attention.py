"""Attention in which a query reads only near keys, in time and memory O(T * window).

Beltagy et al. 2020, "Longformer", https://arxiv.org/abs/2004.05150, section 3.1. B batch, H query heads, G key and
value heads, Tq queries, Tk keys, D width of one head, d dilation.

Query i reads key j if -left <= (j - i) / d <= right and d divides j - i. Causal: left = window - 1, right = 0, the last
`window` positions including its own. Otherwise left = right = window // 2. Queries are cut into tiles, and a tile reads
one stretch of keys. With dilation, the positions with equal remainder by d form a sequence of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from kernels.attention.attention import attention_reference, masked_attention
from kernels.dispatch.mode import is_plain
from kernels.sparse_attention.gathered import biased_attention, folded, layout

# Queries. Larger tiles read fewer keys twice, smaller tiles compute fewer scores outside the window. Forward and
# backward at B 8, T 1024, H 4, D 32, float32, one core of a shared CPU, best of 5: window 64: 109, 127, 102 ms with 16,
# 32, 64; window 256: 324, 249, 248, 306 ms with 32, 64, 128, 256 (378 with 256 and copied keys).
SMALLEST_TILE, LARGE_TILE = 16, 64


def reach(window: int, causal: bool) -> tuple[int, int]:
    """How many keys to the left and to the right of its own position a query reads."""
    return (window - 1, 0) if causal else (window // 2, window // 2)


@dataclass(frozen=True)
class Tiling:
    """How a sequence is cut: `count` tiles of `rows` queries, each reading `columns` keys, `left` before its first
    query.
    """

    count: int
    rows: int
    columns: int
    left: int


def tiling(queries: int, keys: int, window: int, causal: bool) -> Tiling:
    """The cut for a number of queries and keys; it decides the work: count * rows * columns scores."""
    left, right = reach(window, causal)
    rows = max(min(window, LARGE_TILE), window // 4, SMALLEST_TILE)
    if queries <= rows:  # one tile, which needs no other keys than those that exist
        return Tiling(count=1, rows=queries, columns=keys, left=keys - queries)
    columns = -(-(left + right) // rows) * rows + rows  # whole tiles, so that gradients are summed tile by tile
    return Tiling(count=-(-queries // rows), rows=rows, columns=columns, left=columns - rows - right)


@dataclass(frozen=True)
class Everywhere:
    """Keys that all queries read in addition to their window.

    k, v: [B, G, g, D]. keys: [B, g], True where they may be read, or None. bias: [1 or B, H, Tq, g] or None.
    """

    k: Tensor
    v: Tensor
    keys: Tensor | None = None
    bias: Tensor | None = None


def sliding_window_attention_reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    window: int,
    causal: bool,
    dilation: int = 1,
    keys: Tensor | None = None,
    bias: Tensor | None = None,
    everywhere: Everywhere | None = None,
) -> Tensor:
    """The definition, one query after the other; arguments as for `sliding_window_attention`."""
    left, right = reach(window, causal)
    past, length = k.shape[2] - q.shape[2], k.shape[2]
    real = torch.ones(len(q), length, dtype=torch.bool, device=q.device) if keys is None else keys
    rows = []
    for i in range(q.shape[2]):
        steps = [step for step in range(-left, right + 1) if 0 <= past + i + step * dilation < length]
        near = [past + i + step * dilation for step in steps]
        K, V, read = k[:, :, near], v[:, :, near], real[:, near].expand(len(q), -1)
        table = q.new_zeros(q.shape[1], left + 1 + right) if bias is None else bias
        added = table[:, [step + left for step in steps]].expand(len(q), -1, -1)
        if everywhere is not None:
            K, V = torch.cat([everywhere.k, K], dim=2), torch.cat([everywhere.v, V], dim=2)
            some = torch.ones_like(everywhere.k[:, 0, :, 0], dtype=torch.bool)
            read = torch.cat([some if everywhere.keys is None else everywhere.keys, read], dim=1)
            more = q.new_zeros(*added.shape[:2], some.shape[1])
            added = torch.cat([more if everywhere.bias is None else more + everywhere.bias[:, :, i], added], dim=2)
        rows.append(
            torch.cat(
                [
                    attention_reference(
                        q[b : b + 1, :, i : i + 1],
                        K[b : b + 1],
                        V[b : b + 1],
                        keys=read[b : b + 1],
                        bias=added[b][:, None],
                    )
                    for b in range(len(q))
                ]
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
    dilation: int = 1,
    keys: Tensor | None = None,
    bias: Tensor | None = None,
    everywhere: Everywhere | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """q: [B, H, Tq, D], k and v: [B, G, Tk, D] -> [B, H, Tq, D]; the first Tk - Tq keys are the past of the first
    query.

    keys: [1 or B, Tk], True where a key may be read in a window. bias: [H, left + 1 + right], added to the scaled
    scores by the distance (j - i) / d, from -left to right. dropout: the share of weights set to zero. A query without
    any key gives zeros.
    """
    if dilation > 1:
        return _dilated(q, k, v, window, causal, dilation, keys, bias, everywhere, dropout)
    (B, H, Tq, D), Tk = q.shape, k.shape[2]
    tiles = tiling(Tq, Tk, window, causal)
    N, R, K = tiles.count, tiles.rows, tiles.columns
    before = tiles.left - (Tk - Tq)  # keys to add in front; negative: unreachable keys to drop
    ends = (before, (N - 1) * R + K - before - Tk)
    left, right = reach(window, causal)
    distance = torch.arange(K, device=q.device) - tiles.left - torch.arange(R, device=q.device)[:, None]  # [R, K]
    real = torch.ones(1, Tk, dtype=torch.bool, device=q.device) if keys is None else keys
    real = F.pad(real, ends)
    real = (real[:, None] if N == 1 else real.unfold(1, K, R))[:, None, :, None]  # [1 or B, 1, N, 1, K]
    allowed = real & (distance >= -left) & (distance <= right)
    near = None if bias is None else bias[:, (distance + left).clamp(0, left + right)][None, :, None]  # [1, H, 1, R, K]
    if everywhere is not None:
        allowed, near = _with_everywhere(everywhere, allowed, near, N * R - Tq)
    apart = any(mask is not None and len(mask) > 1 for mask in (allowed, near))
    order, fold = layout(B, H, N, apart=apart)

    def stretches(heads: Tensor, more: Tensor | None) -> Tensor:
        """[B, G, Tk, D] -> [.., g + K, D], the keys of each tile; a view if there are no additional keys."""
        heads = F.pad(heads, (0, 0, *ends))
        tiled = heads[:, :, None] if N == 1 else _stretched(heads, K, R)
        if more is not None:
            tiled = torch.cat([more[:, :, None].expand(-1, -1, N, -1, -1), tiled], dim=3)
        return tiled.permute(order).reshape(fold[0], -1, *tiled.shape[3:])

    k = stretches(k, None if everywhere is None else everywhere.k)
    v = stretches(v, None if everywhere is None else everywhere.v)
    queries = F.pad(q, (0, 0, 0, N * R - Tq)).unflatten(2, (N, R)).permute(order).reshape(*fold, R, D)
    mask = folded(allowed, B, N, order)
    if near is None:
        out = masked_attention(queries, k, v, mask, None, dropout=dropout)
    else:
        k, v = (heads.repeat_interleave(fold[1] // heads.shape[1], dim=1) for heads in (k, v))
        out = biased_attention(queries, k, v, mask, folded(near, B, N, order), dropout)
    sizes = [(B, H, N)[axis] for axis in order[:3]]
    back = [order.index(axis) for axis in range(5)]
    return out.view(*sizes, R, D).permute(back).reshape(B, H, N * R, D)[:, :, :Tq]


def _stretched(x: Tensor, K: int, R: int) -> Tensor:
    """[B, G, (N - 1) * R + K, D] -> [B, G, N, K, D], a view: each tile begins R further and has K keys, whole tiles of
    R.
    """
    # dynamo makes an instance of the function, and torch warns about that
    if is_plain() or torch.compiler.is_compiling():
        return x.unfold(2, K, R).transpose(3, 4)
    return _Stretches.apply(x, K, R)


class _Stretches(torch.autograd.Function):
    """The same as `_stretched`, with a faster backward pass.

    It adds K / R tensors of the input's size; torch's own for `unfold` goes number by number. Forward and backward of
    the attention at B 8, T 1024, H 4, D 32, window 64: 170 ms with that of `unfold`, 102 ms with this.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, K: int, R: int) -> Tensor:
        ctx.sizes = K, R
        return x.unfold(2, K, R).transpose(3, 4)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        K, R = ctx.sizes
        B, G, N, _, D = gradient.shape
        total = gradient.new_zeros(B, G, N - 1 + K // R, R, D)
        for tile in range(K // R):
            total[:, :, tile : tile + N] += gradient[:, :, :, tile * R : (tile + 1) * R]
        return total.flatten(2, 3), None, None


def _with_everywhere(
    everywhere: Everywhere, allowed: Tensor, near: Tensor | None, rest: int
) -> tuple[Tensor, Tensor | None]:
    """The masks and biases [1 or B, 1 or H, N, R, K], with those of the keys that all queries read in front."""
    _, _, N, R, _ = allowed.shape
    g, more = everywhere.k.shape[2], everywhere.bias
    some = allowed.new_ones(1, g) if everywhere.keys is None else everywhere.keys
    B = max(len(some), len(allowed))
    some = some[:, None, None, None].expand(B, 1, N, R, g)
    allowed = torch.cat([some, allowed.expand(B, -1, -1, -1, -1)], dim=4)
    if more is not None:
        more = F.pad(more, (0, 0, 0, rest)).unflatten(2, (N, R))
        if near is None:
            near = more.new_zeros(()).expand(1, more.shape[1], 1, R, allowed.shape[4] - g)
    elif near is not None:
        more = near.new_zeros(()).expand(1, near.shape[1], N, R, g)
    if near is None or more is None:
        return allowed, None
    return allowed, torch.cat([more, near.expand(len(more), -1, N, -1, -1)], dim=4)


def _dilated(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    window: int,
    causal: bool,
    dilation: int,
    keys: Tensor | None,
    bias: Tensor | None,
    everywhere: Everywhere | None,
    dropout: float,
) -> Tensor:
    """Windows with dilation: the positions with equal remainder are sequences of a larger batch."""
    (B, _, Tq, _), Tk = q.shape, k.shape[2]
    options: dict[str, Any] = {"window": window, "causal": causal, "bias": bias, "dropout": dropout}
    if Tq == 1:  # it reads only the positions with its own remainder
        k, v = (heads[:, :, (Tk - 1) % dilation :: dilation] for heads in (k, v))
        keys = None if keys is None else keys[:, (Tk - 1) % dilation :: dilation]
        return sliding_window_attention(q, k, v, keys=keys, everywhere=everywhere, **options)
    front, end = -(Tk - Tq) % dilation, -Tq % dilation

    def apart(heads: Tensor, front: int) -> Tensor:
        """[B, H, T, D] -> [B * d, H, T / d, D]."""
        rows = F.pad(heads, (0, 0, front, end)).unflatten(2, (-1, dilation))
        return rows.permute(0, 3, 1, 2, 4).flatten(0, 1)

    if keys is None and (front or (end and not causal)):
        keys = torch.ones(1, Tk, dtype=torch.bool, device=q.device)
    if keys is not None:
        keys = apart(keys.expand(B, -1)[:, None, :, None], front)[:, 0, :, 0]
    if everywhere is not None:
        more = everywhere.bias
        everywhere = Everywhere(
            k=everywhere.k.repeat_interleave(dilation, dim=0),
            v=everywhere.v.repeat_interleave(dilation, dim=0),
            keys=None if everywhere.keys is None else everywhere.keys.repeat_interleave(dilation, dim=0),
            bias=None if more is None else apart(more.expand(B, -1, -1, -1), 0),
        )
    q, k, v = apart(q, 0), apart(k, front), apart(v, front)
    out = sliding_window_attention(q, k, v, keys=keys, everywhere=everywhere, **options)
    return out.unflatten(0, (B, dilation)).permute(0, 2, 3, 1, 4).flatten(2, 3)[:, :, :Tq]
