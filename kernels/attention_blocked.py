"""Exact attention, a block of queries at a time: the scores of one block are all that is ever held.

The backward pass makes the scores of a block again, so memory is O(Tq + Tk) beside rows * Tk scores of the sequences in
a block. Keys that no query of a block may read are left out, so a window takes time in proportion to its reach.
B batch, H query heads, G key and value heads, Tq queries, Tk keys, D width of one head, L queries of a block.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kernels.flops import flops_of


def attention_blocked(
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
    rows: int,
    sequences: int,
) -> Tensor:
    """q: [B, H, Tq, D], k and v: [B, G, Tk, D] -> [B, H, Tq, D], arguments as for `attention_triton`.

    rows: queries of a block, of so many `sequences`.
    """
    device = q.device.type
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        q, k, v = q.to(dtype), k.to(dtype), v.to(dtype)
    scale = 1 / math.sqrt(q.shape[3]) if scale is None else scale
    return _attention(q, k, v, keys, bias, slopes, left, right, scale, rows, sequences)


@torch.library.custom_op("tessera::blocked_attention", mutates_args=())
def _attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    keys: Tensor | None,
    bias: Tensor | None,
    slopes: Tensor | None,
    left: int | None,
    right: int | None,
    scale: float,
    rows: int,
    sequences: int,
) -> Tensor:
    out = torch.empty_like(q)
    H, D, G = q.shape[1], q.shape[3], k.shape[1]
    with torch.autocast(q.device.type, enabled=False):
        for block in _blocks(q, k, left, right, rows, sequences):
            K, V = _wide(k[block.keys]), _wide(v[block.keys])
            if not K.shape[2]:
                out[block.queries] = 0
                continue
            Q = _wide(q[block.queries])
            shares = _shares(Q, K, block, keys, bias, slopes, left, right, scale)
            out[block.queries] = (shares.view(len(Q), G, -1, K.shape[2]) @ V).view(len(Q), H, -1, D)
    return out


@_attention.register_fake
def _(q: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(q)


@torch.library.custom_op("tessera::blocked_attention_backward", mutates_args=())
def _attention_backward(
    d_out: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    keys: Tensor | None,
    bias: Tensor | None,
    slopes: Tensor | None,
    left: int | None,
    right: int | None,
    scale: float,
    rows: int,
    sequences: int,
    wants_bias: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    H, D, G = q.shape[1], q.shape[3], k.shape[1]
    d_q = torch.empty_like(q)
    d_k, d_v = (torch.zeros_like(each, dtype=_width(each)) for each in (k, v))
    d_bias = _empty_bias(q, k, bias, wants_bias).zero_()
    with torch.autocast(q.device.type, enabled=False):
        for block in _blocks(q, k, left, right, rows, sequences):
            K, V, Q = _wide(k[block.keys]), _wide(v[block.keys]), _wide(q[block.queries])
            n, length = len(Q), K.shape[2]
            if not length:
                d_q[block.queries] = 0
                continue
            back = _wide(d_out[block.queries])
            delta = (back * out[block.queries]).sum(3).view(n, G, -1, 1)
            shares = _shares(Q, K, block, keys, bias, slopes, left, right, scale).view(n, G, -1, length)
            back = back.reshape(n, G, -1, D)
            d_v[block.keys] += shares.transpose(2, 3) @ back
            shares *= (back @ V.transpose(2, 3)).sub_(delta)  # now the gradient of the scores
            if wants_bias:
                d_bias[block.table] += shares.view(n, H, -1, length).sum(0)
            d_k[block.keys] += (shares.transpose(2, 3) @ Q.reshape(n, G, -1, D)).mul_(scale)
            d_q[block.queries] = (shares @ K).mul_(scale).view(n, H, -1, D)
    return d_q, d_k.to(k.dtype), d_v.to(v.dtype), d_bias


@_attention_backward.register_fake
def _(d_out: Tensor, q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v), _empty_bias(q, k, rest[2], rest[-1])


def _keep(ctx: Any, inputs: tuple, output: Tensor) -> None:
    q, k, v, keys, bias, slopes, *ctx.settings = inputs
    ctx.save_for_backward(q, k, v, output, keys, bias, slopes)


def _gradients(ctx: Any, d_out: Tensor) -> tuple:
    wants_bias = ctx.needs_input_grad[4]
    d_q, d_k, d_v, d_bias = _attention_backward(d_out, *ctx.saved_tensors, *ctx.settings, wants_bias)
    return d_q, d_k, d_v, None, d_bias if wants_bias else None, *[None] * 6


_attention.register_autograd(_gradients, setup_context=_keep)


@flops_of(torch.ops.tessera.blocked_attention)
def _flops(q: tuple, k: tuple, *_: Any, **__: Any) -> int:
    B, H, queries, D = q
    return 4 * B * H * queries * k[2] * D


@flops_of(torch.ops.tessera.blocked_attention_backward)
def _backward_flops(_d_out: tuple, q: tuple, k: tuple, *_: Any, **__: Any) -> int:
    """As of plain attention, whose backward pass computes no scores again."""
    return 2 * _flops(q, k)


@dataclass(frozen=True)
class _Block:
    """Queries from `first` on, which stand at positions from `place` on, and the keys that some of them may read."""

    queries: tuple[slice, ...]
    keys: tuple[slice, ...]
    place: int

    @property
    def table(self) -> tuple[slice, slice, slice]:
        """Where its scores stand in a bias."""
        return slice(None), self.queries[2], self.keys[2]


def _blocks(q: Tensor, k: Tensor, left: int | None, right: int | None, rows: int, sequences: int) -> Iterator[_Block]:
    queries, length = q.shape[2], k.shape[2]
    past = length - queries
    for b in range(0, len(q), sequences):
        some = slice(b, b + sequences)
        for i in range(0, queries, rows):
            end = min(i + rows, queries)
            low = 0 if left is None else min(max(i + past - left, 0), length)
            high = length if right is None else max(min(end + past + right, length), low)
            yield _Block((some, slice(None), slice(i, end)), (some, slice(None), slice(low, high)), i + past)


def _shares(
    q: Tensor,
    k: Tensor,
    block: _Block,
    keys: Tensor | None,
    bias: Tensor | None,
    slopes: Tensor | None,
    left: int | None,
    right: int | None,
    scale: float,
) -> Tensor:
    """The weights of a block [B, H, L, keys]; rows without any key are zeros."""
    B, H, L, D = q.shape
    length = k.shape[2]
    scores = ((q * scale).reshape(B, k.shape[1], -1, D) @ k.transpose(2, 3)).view(B, H, L, length)
    if bias is not None:
        scores += bias[block.table]
    first = block.keys[2].start
    place = torch.arange(block.place, block.place + L, device=q.device)[:, None]
    distance = torch.arange(first, first + length, device=q.device) - place  # [L, keys]
    if slopes is not None:
        scores -= slopes[:, None, None] * distance.abs()
    cut_left = left is not None and first < block.place + L - 1 - left
    cut_right = right is not None and first + length - 1 > block.place + right
    if cut_left and left is not None:
        scores.masked_fill_(distance < -left, -math.inf)
    if cut_right and right is not None:
        scores.masked_fill_(distance > right, -math.inf)
    if keys is not None:
        scores.masked_fill_(~keys[block.keys[0], None, None, block.keys[2]], -math.inf)
    shares = scores.softmax(3)
    if keys is not None or bias is not None or (right is not None and block.place + right < 0):
        shares.masked_fill_((scores == -math.inf).all(3, keepdim=True), 0)
    return shares


def _width(x: Tensor) -> torch.dtype:
    return torch.promote_types(x.dtype, torch.float32)


def _wide(x: Tensor) -> Tensor:
    return x.to(_width(x))


def _empty_bias(q: Tensor, k: Tensor, bias: Tensor | None, wanted: bool) -> Tensor:
    if bias is None or not wanted:
        return q.new_empty(0)
    return bias.new_empty(q.shape[1], q.shape[2], k.shape[2])
