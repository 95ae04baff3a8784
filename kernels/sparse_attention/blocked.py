"""Block-sparse attention, a few query blocks at a time: only their gathered keys are held.

The backward pass gathers the keys and computes the scores again, so it needs the memory of one pass plus that of the
heads. B batch, H query heads, G key and value heads, Tq queries, Tk keys, D width of one head, N query blocks of R
queries, M key blocks of S keys, n key blocks that a query block reads, K = n * S, P query blocks of a pass. X lists are
read by Y heads each: one list per head, or one for the heads of a group, which share their keys.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from kernels.dispatch.operators import flops_of, operator
from kernels.dispatch.precision import computed
from kernels.rowwise.rows import wide
from kernels.sparse_attention.gathered import gathered, readable


def block_sparse_blocked(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    blocks: Tensor,
    *,
    rows: int,
    columns: int,
    allowed: Tensor | None,
    keys: Tensor | None,
    bias: Tensor | None,
    together: int,
) -> Tensor:
    """Arguments and result as for `block_sparse_attention`; together: the query blocks of a pass."""
    q, k, v = (heads.to(computed(heads)) for heads in (q, k, v))
    return _attention(q, k, v, blocks, allowed, keys, bias, rows, columns, together)


@operator("blocked_block_sparse_attention")
def _attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    blocks: Tensor,
    allowed: Tensor | None,
    keys: Tensor | None,
    bias: Tensor | None,
    rows: int,
    columns: int,
    together: int,
) -> Tensor:
    out, Tk = torch.empty_like(q), k.shape[2]
    k, v = k.contiguous(), v.contiguous()  # one copy for all passes
    if Tk % columns:
        k, v = (F.pad(heads, (0, 0, 0, -Tk % columns)) for heads in (k, v))
        real = torch.ones(len(q), Tk, dtype=torch.bool, device=q.device) if keys is None else keys
        keys = F.pad(real, (0, -Tk % columns))
    with torch.autocast(q.device.type, enabled=False):
        for some in _passes(q, k, blocks, rows, columns, together):
            out[some.queries] = gathered(
                q[some.queries], k, v, some.lists, rows=rows, columns=columns, allowed=some.of(allowed), keys=keys,
                bias=some.of(bias),
            )  # fmt: skip
    return out


@_attention.register_fake
def _(q: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(q)


@operator("blocked_block_sparse_attention_backward")
def _attention_backward(
    d_out: Tensor,
    out: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    blocks: Tensor,
    allowed: Tensor | None,
    keys: Tensor | None,
    bias: Tensor | None,
    rows: int,
    columns: int,
    together: int,
    wants_bias: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    if not len(q):
        return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v), empty_bias(q, bias, wants_bias).zero_()
    scale = 1 / math.sqrt(q.shape[3])
    K, V = _in_blocks(k, columns), _in_blocks(v, columns)
    d_q, d_K, d_V = torch.empty_like(q), torch.zeros_like(K), torch.zeros_like(V)
    d_bias = empty_bias(q, bias, wants_bias).zero_().to(K.dtype)
    with torch.autocast(q.device.type, enabled=False):
        for some in _passes(q, k, blocks, rows, columns, together):
            Q, near, back = some.taken(q), some.gathered(K), some.taken(d_out)
            may = readable(some.lists, some.of(allowed), keys, k.shape[2], columns)
            if may is not None:  # a row without any key has weights, but nothing may come from them
                empty = ~some.spread(may).any(5, keepdim=True)
                back = back.unflatten(3, some.rows).masked_fill(empty, 0).flatten(3, 4)
            shares = _shares(Q, near, some, may, some.of(bias))
            delta = (back * some.taken(out)).sum(-1, keepdim=True)
            some.add(d_V, shares.flatten(3, 4).transpose(3, 4) @ back)
            slopes = (back @ some.gathered(V).transpose(3, 4)).sub_(delta).view(shares.shape).mul_(shares)
            if wants_bias and bias is not None:
                here = d_bias[:, :, some.at] if d_bias.shape[2] > 1 else d_bias
                here += slopes.transpose(2, 3).flatten(1, 2).sum_to_size(here.shape)
            slopes = slopes.flatten(3, 4).mul_(scale)
            some.add(d_K, slopes.transpose(3, 4) @ Q)
            some.put(d_q, slopes @ near)
    return d_q, _out_of_blocks(d_K, k), _out_of_blocks(d_V, v), d_bias if bias is None else d_bias.to(bias.dtype)


@_attention_backward.register_fake
def _(d_out: Tensor, out: Tensor, q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    d_k, d_v = (torch.empty_like(each, memory_format=torch.contiguous_format) for each in (k, v))
    return torch.empty_like(q), d_k, d_v, empty_bias(q, rest[3], rest[-1])


def _keep(ctx: Any, inputs: tuple, output: Tensor) -> None:
    q, k, v, blocks, allowed, keys, bias, *ctx.settings = inputs
    ctx.save_for_backward(output, q, k, v, blocks, allowed, keys, bias)


def _gradients(ctx: Any, d_out: Tensor) -> tuple:
    wants_bias = ctx.needs_input_grad[6]
    d_q, d_k, d_v, d_bias = _attention_backward(d_out, *ctx.saved_tensors, *ctx.settings, wants_bias)
    return d_q, d_k, d_v, None, None, None, d_bias if wants_bias else None, None, None, None


_attention.register_autograd(_gradients, setup_context=_keep)


@flops_of(_attention)
def flops(
    q: tuple, k: tuple, v: tuple, blocks: tuple, allowed: Any, keys: Any, bias: Any, rows: int, columns: int,
    *_: Any, **__: Any,
) -> int:  # fmt: skip
    """FLOPs of the scores and the sums of all listed pairs; the arguments of an operator, with shapes for tensors."""
    B, H, _Tq, D = q
    return 4 * B * H * blocks[2] * rows * blocks[3] * columns * D


@flops_of(_attention_backward)
def _backward_flops(_d_out: tuple, _out: tuple, *inputs: Any, **_: Any) -> int:
    """As for plain attention, whose backward pass does not compute the scores again."""
    return 2 * flops(*inputs)


def empty_bias(q: Tensor, bias: Tensor | None, wanted: bool) -> Tensor:
    """Memory for the gradient of `bias`, in its shape; [0] if there is no bias or the gradient is not wanted."""
    return q.new_empty(0) if bias is None or not wanted else bias.new_empty(bias.shape)


def _in_blocks(x: Tensor, columns: int) -> Tensor:
    """[B, G, Tk, D] -> [B * G * M, S, D], with zeros after the end."""
    x = F.pad(x.to(wide(x)), (0, 0, 0, -x.shape[2] % columns))
    return x.reshape(x.shape[0] * x.shape[1] * (x.shape[2] // columns), columns, x.shape[3])


def _out_of_blocks(x: Tensor, like: Tensor) -> Tensor:
    B, G, Tk, D = like.shape
    return x.view(B, G, len(x) // max(B * G, 1) * x.shape[1], D)[:, :, :Tk].to(like.dtype).contiguous()


@dataclass(frozen=True)
class _Pass:
    """The query blocks `at` of N, and the blocks of keys that they read.

    which: [B * X * P * n] rows of the result of `_in_blocks`; lists: [1 or B, 1 or H, P, n].
    """

    at: slice
    sizes: tuple[int, int, int, int, int]  # B, X, Y, P, R
    which: Tensor
    lists: Tensor

    @property
    def rows(self) -> tuple[int, int]:
        return self.sizes[2], self.sizes[4]

    @property
    def queries(self) -> tuple[slice, slice, slice]:
        R = self.sizes[4]
        return slice(None), slice(None), slice(self.at.start * R, self.at.stop * R)

    def taken(self, x: Tensor) -> Tensor:
        """[B, H, Tq, D] -> [B, X, P, Y * R, D], with zeros after the end."""
        B, X, Y, P, R = self.sizes
        x = x[self.queries].to(wide(x))
        x = F.pad(x, (0, 0, 0, P * R - x.shape[2]))
        return x.reshape(B, X, Y, P, R, x.shape[3]).transpose(2, 3).flatten(3, 4)

    def put(self, out: Tensor, x: Tensor) -> None:
        """Write [B, X, P, Y * R, D] to its place in [B, H, Tq, D]."""
        there = out[self.queries]
        x = x.unflatten(3, self.rows).transpose(2, 3).flatten(3, 4).flatten(1, 2)
        there.copy_(x[:, :, : there.shape[2]])

    def gathered(self, x: Tensor) -> Tensor:
        """[B * G * M, S, D] -> [B, X, P, n * S, D]."""
        B, X, _, P, _ = self.sizes
        return x.index_select(0, self.which).view(B, X, P, self.lists.shape[3] * x.shape[1], x.shape[2])

    def add(self, sums: Tensor, x: Tensor) -> None:
        """Add what `gathered` read to the place where it was read."""
        sums.index_add_(0, self.which, x.reshape(len(self.which), *sums.shape[1:]))

    def of(self, mask: Tensor | None) -> Tensor | None:
        """[1 or B, 1 or H, 1 or N, 1 or R, K], the part of these blocks."""
        return mask if mask is None or mask.shape[2] == 1 else mask[:, :, self.at]

    def spread(self, mask: Tensor) -> Tensor:
        """The same in the axes of scores, [1 or B, 1 or X, 1 or P, 1 or Y, 1 or R, K]."""
        heads = mask[:, :, None] if mask.shape[1] == 1 else mask.unflatten(1, self.sizes[1:3])
        return heads.transpose(2, 3)


def _passes(q: Tensor, k: Tensor, blocks: Tensor, rows: int, columns: int, together: int) -> Iterator[_Pass]:
    (B, H), (G, Tk), N = q.shape[:2], k.shape[1:3], blocks.shape[2]
    X, M = G if blocks.shape[1] == 1 else H, -(-Tk // columns)
    first = (torch.arange(B * X, device=q.device) // (X // G) * M).view(B, X, 1, 1)
    for start in range(0, N, together):
        at = slice(start, min(start + together, N))
        P, lists = at.stop - start, blocks[:, :, at]
        yield _Pass(at, (B, X, H // X, P, rows), (first + lists).flatten(), lists)


def _shares(q: Tensor, k: Tensor, some: _Pass, may: Tensor | None, bias: Tensor | None) -> Tensor:
    """The weights of a pass, [B, X, P, Y, R, K]; equal weights in a row without any key."""
    scores = ((q * (1 / math.sqrt(q.shape[4]))) @ k.transpose(3, 4)).unflatten(3, some.rows)
    if bias is not None:
        scores += some.spread(bias)
    if may is not None:
        scores.masked_fill_(~some.spread(may), torch.finfo(scores.dtype).min)
    return scores.softmax(5)
