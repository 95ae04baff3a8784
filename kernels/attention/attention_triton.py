"""Attention in tiles as torch operators: forward, backward, fake tensors, FLOPs.

The kernels are in `kernels_triton`. B batch, H query heads, G key and value heads, Tq queries, Tk keys, D width of one
head. If packed, a batch of one holds N sequences end to end; sequence n is at offsets[n] to offsets[n + 1].
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import triton
from torch import Tensor

from kernels.attention.blocked import along_diagonals
from kernels.attention.kernels_triton import _backward_bias, _backward_keys, _backward_queries, _forward
from kernels.attention.weight_dropout import dropped_of
from kernels.dispatch.operators import flops_of, operator

Tiles = list[int]  # forward: queries, keys; backward: own rows of a program, rows of a step; then warps, stages
SLAB = 2**24  # numbers of the gradient of a bias that are held at once if it is summed by distance: 64 MB


def attention_triton(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    left: int | None,
    right: int | None,
    keys: Tensor | None,
    bias: Tensor | None,
    slopes: Tensor | None,
    scale: float | None,
    precision: str,
    forward: Tiles,
    backward: Tiles,
    dropout: float = 0.0,
    seed: Tensor | None = None,
    offsets: Tensor | None = None,
    key_offsets: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """q: [B, H, Tq, D], k and v: [B, G, Tk, D] -> out [B, H, Tq, D], LSE [B, H, Tq].

    A query reads the keys from `left` positions before its own to `right` after it; None means all. keys: [B, Tk], True
    where a key may be read. bias: [H, Tq, Tk], or by distance [H, Tq + Tk - 1]. slopes: [H]. seed: [1], selects the
    share `dropout` of the weights to drop. offsets, key_offsets: [N + 1], int32, of packed sequences, which take no
    `keys` and no `bias`; positions outside all sequences give zeros. Under autocast q, k and v are cast as by torch's
    own attention. No gradient passes through LSE.
    """
    device = q.device.type
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        q, k, v = q.to(dtype), k.to(dtype), v.to(dtype)
    scale = 1 / math.sqrt(q.shape[3]) if scale is None else scale
    if triton.knobs.runtime.interpret and q.dtype == torch.bfloat16:
        precision = "widened"
    tensors = q, k, v, keys, bias, slopes, seed, offsets, key_offsets
    return _attention(*tensors, left, right, scale, dropped_of(dropout), precision, forward, backward)


@operator("tiled_attention")
def _attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    keys: Tensor | None,
    bias: Tensor | None,
    slopes: Tensor | None,
    seed: Tensor | None,
    offsets: Tensor | None,
    key_offsets: Tensor | None,
    left: int | None,
    right: int | None,
    scale: float,
    dropped: int,
    precision: str,
    forward: Tiles,
    backward: Tiles,
) -> tuple[Tensor, Tensor]:
    q, k, v = (_dense(heads) for heads in (q, k, v))
    B, H, queries, D = q.shape
    out = _blank(q, offsets)
    lse = q.new_empty(B, H, queries, dtype=torch.float32)
    if not out.numel():
        return out, lse.fill_(-math.inf)
    rows, columns, warps, stages = forward
    keys, bounds = _prepared(keys)
    slopes = None if slopes is None else slopes.contiguous()
    bias, bias_by = _bias(bias, queries)
    packing, tiles = _packing(offsets, key_offsets, queries, rows, own=0)
    with torch.cuda.device_of(q):
        _forward[tiles * B * H,](
            q, k, v, out, lse, keys, bounds, bias, slopes, seed, packing, _by(q), _by(k), _by(v), _by(out), bias_by,
            tiles, H, k.shape[1], queries, k.shape[2], left or 0, right or 0, scale, dropped,
            WIDTH=D, LEFT=left is not None, RIGHT=right is not None, PRECISION=precision,
            BLOCK_Q=rows, BLOCK_K=columns, BLOCK_D=_padded(D), num_warps=warps, num_stages=stages,
        )  # fmt: skip
    return out, lse


@_attention.register_fake
def _(q: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return torch.empty_like(_dense(q)), q.new_empty(q.shape[:3], dtype=torch.float32)


@operator("tiled_attention_backward")
def _attention_backward(
    d_out: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    keys: Tensor | None,
    bias: Tensor | None,
    slopes: Tensor | None,
    seed: Tensor | None,
    offsets: Tensor | None,
    key_offsets: Tensor | None,
    left: int | None,
    right: int | None,
    scale: float,
    dropped: int,
    precision: str,
    backward: Tiles,
    wants_bias: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    d_out, q, k, v, out = (_dense(heads) for heads in (d_out, q, k, v, out))
    (B, H, queries, D), (G, length) = q.shape, k.shape[1:3]
    d_q, d_k, d_v = (_blank(heads, offsets) for heads in (q, k, v))
    d_bias = _empty_bias(q, bias, wants_bias)
    if not queries * length * B:
        return d_q.zero_(), d_k.zero_(), d_v.zero_(), d_bias.zero_()
    own, step, warps, stages = backward
    delta = torch.empty_like(lse)
    keys, bounds = _prepared(keys)
    slopes = None if slopes is None else slopes.contiguous()
    bias, bias_by = _bias(bias, queries)
    constants = {
        "WIDTH": D, "LEFT": left is not None, "RIGHT": right is not None, "PRECISION": precision,
        "BLOCK_D": _padded(D), "num_warps": warps, "num_stages": stages,
    }  # fmt: skip
    sizes = H, G, queries, length, left or 0, right or 0, scale, dropped
    with torch.cuda.device_of(q):
        packing, tiles = _packing(offsets, key_offsets, queries, own, own=0)
        _backward_queries[tiles * B * H,](
            q, k, v, out, d_out, lse, delta, d_q, keys, bounds, bias, slopes, seed, packing,
            _by(q), _by(k), _by(v), _by(out), _by(d_out), _by(d_q), bias_by, tiles, *sizes,
            BLOCK_Q=own, BLOCK_K=step, **constants,
        )  # fmt: skip
        packing, tiles = _packing(offsets, key_offsets, length, own, own=1)
        _backward_keys[tiles * B * G,](
            q, k, v, d_out, lse, delta, d_k, d_v, keys, bounds, bias, slopes, seed, packing,
            _by(q), _by(k), _by(v), _by(d_out), _by(d_k), _by(d_v), bias_by, tiles, *sizes,
            BLOCK_Q=step, BLOCK_K=own, **constants,
        )  # fmt: skip

        def of_bias(grads: Tensor, first: int, last: int) -> Tensor:
            _backward_bias[triton.cdiv(last - first, own) * triton.cdiv(length, step) * H,](
                q, k, v, d_out, lse, delta, grads, keys, bias, slopes, seed,
                _by(q), _by(k), _by(v), _by(d_out), bias_by, B, *sizes, first, last,
                BLOCK_Q=own, BLOCK_K=step, **constants,
            )  # fmt: skip
            return grads

        if d_bias.dim() == 3:
            of_bias(d_bias, 0, queries)
        elif wants_bias:
            d_bias = _by_distance(of_bias, H, queries, length, own, d_bias)
    return d_q, d_k, d_v, d_bias


def _by_distance(
    of_bias: Callable[[Tensor, int, int], Tensor], H: int, queries: int, length: int, own: int, like: Tensor
) -> Tensor:
    """The gradients of all pairs, a slab of queries at a time, summed along the diagonals."""
    whole = like.new_zeros(like.shape, dtype=torch.float32)
    rows = max(1, SLAB // (H * length * own)) * own
    for first in range(0, queries, rows):
        last = min(first + rows, queries)
        grads = of_bias(whole.new_empty(H, last - first, length), first, last)
        whole[:, queries - last : queries - first + length - 1] += along_diagonals(grads)
    return whole.to(like.dtype)


@_attention_backward.register_fake
def _(d_out: Tensor, q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    heads = (torch.empty_like(_dense(each)) for each in (q, k, v))
    return *heads, _empty_bias(q, rest[3], rest[-1])  # type: ignore[return-value]


def _keep(ctx: Any, inputs: tuple, output: tuple[Tensor, Tensor]) -> None:
    q, k, v, *others = inputs
    out, lse = output
    ctx.save_for_backward(q, k, v, out, lse, *others[:6])
    ctx.settings = others[6:]
    ctx.mark_non_differentiable(lse)


def _gradients(ctx: Any, d_out: Tensor, _d_lse: Tensor) -> tuple:
    *settings, _, backward = ctx.settings
    wants_bias = ctx.needs_input_grad[4]
    settings += [backward, wants_bias]
    d_q, d_k, d_v, d_bias = _attention_backward(d_out, *ctx.saved_tensors, *settings)
    return d_q, d_k, d_v, None, d_bias if wants_bias else None, *[None] * 11


_attention.register_autograd(_gradients, setup_context=_keep)


@flops_of(_attention)
def _flops(q: tuple, k: tuple, *_: Any, **__: Any) -> int:
    B, H, queries, D = q
    return 4 * B * H * queries * k[2] * D


@flops_of(_attention_backward)
def _backward_flops(_d_out: tuple, q: tuple, k: tuple, *_: Any, **__: Any) -> int:
    """As for plain attention, whose backward pass does not compute the scores again."""
    return 2 * _flops(q, k)


def _dense(x: Tensor) -> Tensor:
    """The same tensor with contiguous features. The kernels accept any strides of the other axes."""
    return x if x.stride(-1) == 1 else x.contiguous()


def _blank(like: Tensor, offsets: Tensor | None) -> Tensor:
    """Memory for a result; zeros if some positions may belong to no sequence."""
    return torch.empty_like(like) if offsets is None else torch.zeros_like(like)


def _prepared(keys: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """Also the first and the last key that each sequence may read, so that no tile of padding is visited."""
    if keys is None:
        return None, None
    places = torch.arange(keys.shape[1], device=keys.device, dtype=torch.int32)
    first = torch.where(keys, places, keys.shape[1]).amin(1) if keys.shape[1] else keys.new_zeros(len(keys))
    last = torch.where(keys, places + 1, 0).amax(1) if keys.shape[1] else keys.new_zeros(len(keys))
    return keys.contiguous(), torch.stack([first, last], dim=1).to(torch.int32)


def _bias(bias: Tensor | None, queries: int) -> tuple[Tensor | None, tuple[int, int]]:
    """The bias with the strides of heads and queries. By distance, the row of a query begins one number before the
    previous.
    """
    if bias is None:
        return None, (0, 0)
    bias = _dense(bias)
    heads, along = bias.stride()[:2]
    return (bias, (heads, along)) if bias.dim() == 3 else (bias[:, queries - 1 :], (heads, -1))


def _packing(
    offsets: Tensor | None, key_offsets: Tensor | None, length: int, rows: int, own: int
) -> tuple[Tensor | None, int]:
    """What `_sequence` in the kernels reads for each tile of `rows` queries (own=0) or keys (own=1), and how many
    tiles.

    The number of tiles is the largest possible one, because the CPU does not know where sequences end. Spare tiles are
    empty.
    """
    if offsets is None or key_offsets is None:
        return None, triton.cdiv(length, rows)
    ends = (offsets, key_offsets)
    lengths = [torch.cat([each.diff(), each.new_zeros(1)]) for each in ends]  # the last one is for spare tiles
    tiles = (lengths[own] + rows - 1) // rows
    after = tiles.cumsum(0)
    tile = torch.arange(length // rows + len(offsets) - 1, device=offsets.device)
    sequence = torch.searchsorted(after[:-1], tile, right=True)
    start = (tile - (after - tiles)[sequence]) * rows
    table = [start, *(each[sequence] for each in (*ends, *lengths))]
    return torch.stack([each.to(torch.int32) for each in table]), len(tile)


def _empty_bias(q: Tensor, bias: Tensor | None, wanted: bool) -> Tensor:
    return q.new_empty(0) if bias is None or not wanted else bias.new_empty(bias.shape)


def _by(x: Tensor) -> tuple[int, ...]:
    """The strides of all but the last axis."""
    return x.stride()[:-1]


def _padded(width: int) -> int:
    """The next power of two, at least 16, the minimum for a product of tiles."""
    return max(16, triton.next_power_of_2(width))
