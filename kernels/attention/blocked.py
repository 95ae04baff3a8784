"""Exact attention, one block of queries at a time: only the scores of one block are held.

The backward pass computes the scores of a block again. So memory is O(Tq + Tk), plus rows * Tk scores for the sequences
in a block. Keys that no query of a block may read are left out, so with a window the time is proportional to its reach.
B batch, H query heads, G key and value heads, Tq queries, Tk keys, D width of one head, L queries of a block. If
packed, a batch of one holds N sequences end to end; sequence n is at offsets[n] to offsets[n + 1].
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kernels.attention.diagonals import by_key
from kernels.attention.weight_dropout import dropped_of, kept
from kernels.dispatch.operators import flops_of, operator


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
    dropout: float = 0.0,
    seed: Tensor | None = None,
    offsets: Tensor | None = None,
    key_offsets: Tensor | None = None,
) -> Tensor:
    """q: [B, H, Tq, D], k and v: [B, G, Tk, D] -> [B, H, Tq, D]; arguments as for `attention_triton`.

    rows: queries of a block. sequences: how many sequences a block covers.
    """
    device = q.device.type
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        q, k, v = q.to(dtype), k.to(dtype), v.to(dtype)
    scale = 1 / math.sqrt(q.shape[3]) if scale is None else scale
    tensors = q, k, v, keys, bias, slopes, seed, offsets, key_offsets
    return _attention(*tensors, left, right, scale, dropped_of(dropout), rows, sequences)


@operator("blocked_attention")
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
    rows: int,
    sequences: int,
) -> Tensor:
    out = torch.empty_like(q) if offsets is None else torch.zeros_like(q)  # zeros for positions that are in no sequence
    H, D, G = q.shape[1], q.shape[3], k.shape[1]
    with torch.autocast(q.device.type, enabled=False):
        for block in _blocks(q, k, offsets, key_offsets, left, right, rows, sequences):
            K, V = _wide(k[block.keys]), _wide(v[block.keys])
            if not K.shape[2]:
                out[block.queries] = 0
                continue
            Q = _wide(q[block.queries])
            shares = _shares(Q, K, block, keys, bias, slopes, left, right, scale)
            if seed is not None:
                shares *= _kept(q, block, seed, dropped)
            out[block.queries] = (shares.view(len(Q), G, -1, K.shape[2]) @ V).view(len(Q), H, -1, D)
    return out


@_attention.register_fake
def _(q: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(q)


@operator("blocked_attention_backward")
def _attention_backward(
    d_out: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
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
    rows: int,
    sequences: int,
    wants_bias: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    H, D, G = q.shape[1], q.shape[3], k.shape[1]
    d_q = torch.empty_like(q) if offsets is None else torch.zeros_like(q)
    d_k, d_v = (torch.zeros_like(each, dtype=_width(each)) for each in (k, v))
    d_bias = _empty_bias(q, bias, wants_bias).zero_()
    with torch.autocast(q.device.type, enabled=False):
        for block in _blocks(q, k, offsets, key_offsets, left, right, rows, sequences):
            K, V, Q = _wide(k[block.keys]), _wide(v[block.keys]), _wide(q[block.queries])
            n, length = len(Q), K.shape[2]
            if not length:
                d_q[block.queries] = 0
                continue
            back = _wide(d_out[block.queries])
            delta = (back * out[block.queries]).sum(3).view(n, G, -1, 1)
            shares = _shares(Q, K, block, keys, bias, slopes, left, right, scale).view(n, G, -1, length)
            back = back.reshape(n, G, -1, D)
            reads, slopes_of = shares, back @ V.transpose(2, 3)
            if seed is not None:
                factors = _kept(q, block, seed, dropped).view(n, G, -1, length)
                reads, slopes_of = shares * factors, slopes_of.mul_(factors)
            d_v[block.keys] += reads.transpose(2, 3) @ back
            shares *= slopes_of.sub_(delta)  # now the gradient of the scores
            if wants_bias:
                _add_to_bias(d_bias, shares.view(n, H, -1, length).sum(0), block)
            d_k[block.keys] += (shares.transpose(2, 3) @ Q.reshape(n, G, -1, D)).mul_(scale)
            d_q[block.queries] = (shares @ K).mul_(scale).view(n, H, -1, D)
    return d_q, d_k.to(k.dtype), d_v.to(v.dtype), d_bias


@_attention_backward.register_fake
def _(d_out: Tensor, q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v), _empty_bias(q, rest[2], rest[-1])


def _keep(ctx: Any, inputs: tuple, output: Tensor) -> None:
    q, k, v, *others = inputs
    ctx.save_for_backward(q, k, v, output, *others[:6])
    ctx.settings = others[6:]


def _gradients(ctx: Any, d_out: Tensor) -> tuple:
    wants_bias = ctx.needs_input_grad[4]
    d_q, d_k, d_v, d_bias = _attention_backward(d_out, *ctx.saved_tensors, *ctx.settings, wants_bias)
    return d_q, d_k, d_v, None, d_bias if wants_bias else None, *[None] * 10


_attention.register_autograd(_gradients, setup_context=_keep)


@flops_of(_attention)
def _flops(q: tuple, k: tuple, *_: Any, **__: Any) -> int:
    B, H, queries, D = q
    return 4 * B * H * queries * k[2] * D


@flops_of(_attention_backward)
def _backward_flops(_d_out: tuple, q: tuple, k: tuple, *_: Any, **__: Any) -> int:
    """As for plain attention, whose backward pass does not compute the scores again."""
    return 2 * _flops(q, k)


@dataclass(frozen=True)
class _Block:
    """A block of queries that starts at position `place` of the sequence, and the keys from `first` on that at least
    one of them may read.
    """

    queries: tuple[slice, ...]
    keys: tuple[slice, ...]
    place: int
    first: int
    line: int  # where its scores begin in a bias by distance: those of its last query


def _blocks(
    q: Tensor,
    k: Tensor,
    offsets: Tensor | None,
    key_offsets: Tensor | None,
    left: int | None,
    right: int | None,
    rows: int,
    sequences: int,
) -> Iterator[_Block]:
    for some, own, read in _sequences(q, k, offsets, key_offsets, sequences):
        past = len(read) - len(own)
        for i in range(0, len(own), rows):
            end = min(i + rows, len(own))
            low = 0 if left is None else min(max(i + past - left, 0), len(read))
            high = len(read) if right is None else max(min(end + past + right, len(read)), low)
            queries, keys = (slice(part.start, part.stop) for part in (own[i:end], read[low:high]))
            line = low + q.shape[2] - end
            yield _Block((some, slice(None), queries), (some, slice(None), keys), i + past, low, line)


def _sequences(
    q: Tensor, k: Tensor, offsets: Tensor | None, key_offsets: Tensor | None, together: int
) -> Iterator[tuple[slice, range, range]]:
    """The sequences of the batch, with the queries and keys of each."""
    if offsets is None or key_offsets is None:
        for b in range(0, len(q), together):
            yield slice(b, b + together), range(q.shape[2]), range(k.shape[2])
        return
    ends, key_ends = offsets.tolist(), key_offsets.tolist()
    for n in range(len(ends) - 1):
        yield slice(0, 1), range(ends[n], ends[n + 1]), range(key_ends[n], key_ends[n + 1])


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
    length, first = k.shape[2], block.first
    scores = ((q * scale).reshape(B, k.shape[1], -1, D) @ k.transpose(2, 3)).view(B, H, L, length)
    if bias is not None:
        scores += _part(bias, block, L, length)
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


def _part(bias: Tensor, block: _Block, rows: int, length: int) -> Tensor:
    """The bias of a block, [H, L, keys]."""
    if bias.dim() == 3:
        return bias[:, block.queries[2], block.keys[2]]
    return bias[:, block.line : block.line + rows + length - 1].unfold(1, length, 1).flip(1)


def _add_to_bias(d_bias: Tensor, grads: Tensor, block: _Block) -> None:
    """Add the gradients of the scores of a block, grads: [H, L, keys], to the gradient of the bias."""
    if d_bias.dim() == 3:
        d_bias[:, block.queries[2], block.keys[2]] += grads
    else:
        d_bias[:, block.line : block.line + grads.shape[1] + grads.shape[2] - 1] += along_diagonals(grads)


def along_diagonals(grads: Tensor) -> Tensor:
    """[H, L, K] -> [H, L + K - 1]: the sums over equal distances, starting with the distance of the last row's first
    number.
    """
    return by_key(grads.flip(1), grads.shape[1] + grads.shape[2] - 1).sum(1)


def _kept(q: Tensor, block: _Block, seed: Tensor, dropped: int) -> Tensor:
    """The factors of the weights of a block that dropout leaves, [B, H, L, keys]."""
    B, H, queries, _ = q.shape
    b, i = (torch.arange(n, device=q.device)[some] for n, some in zip((B, queries), block.queries[::2], strict=True))
    heads = b[:, None] * H + torch.arange(H, device=q.device)
    keys = range(block.first, block.first + block.keys[2].stop - block.keys[2].start)
    return kept(seed, heads[..., None] * queries + i, keys, dropped, _width(q))


def _width(x: Tensor) -> torch.dtype:
    return torch.promote_types(x.dtype, torch.float32)


def _wide(x: Tensor) -> Tensor:
    return x.to(_width(x))


def _empty_bias(q: Tensor, bias: Tensor | None, wanted: bool) -> Tensor:
    return q.new_empty(0) if bias is None or not wanted else bias.new_empty(bias.shape)
