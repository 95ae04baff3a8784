"""Block-sparse attention in tiles as torch operators: forward, backward, fake tensors, FLOPs.

The kernels are in `kernels_triton`. B batch, H query heads, G key and value heads, Tq queries, Tk keys, D width of one
head, N query blocks of R queries, M key blocks of S keys, n key blocks that a query block reads.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
from torch import Tensor

from kernels.attention.attention_triton import Tiles, _by, _dense, _padded
from kernels.dispatch.operators import flops_of, operator
from kernels.dispatch.precision import computed
from kernels.sparse_attention.blocked import empty_bias, flops
from kernels.sparse_attention.kernels_triton import (
    _backward_bias,
    _backward_keys,
    _backward_queries,
    _forward,
)


def block_sparse_triton(
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
    precision: str,
    forward: Tiles,
    backward: Tiles,
) -> tuple[Tensor, Tensor]:
    """Arguments as for `block_sparse_attention` -> out [B, H, Tq, D], LSE [B, H, Tq], which passes no gradient.

    forward: block_q, block_k, warps, stages. backward: own rows of a program, rows of a step, warps, stages.
    """
    q, k, v = (heads.to(computed(heads)) for heads in (q, k, v))
    if triton.knobs.runtime.interpret and q.dtype == torch.bfloat16:
        precision = "widened"
    return _attention(q, k, v, blocks, allowed, keys, bias, rows, columns, precision, forward, backward)


@operator("tiled_block_sparse_attention")
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
    precision: str,
    forward: Tiles,
    backward: Tiles,
) -> tuple[Tensor, Tensor]:
    q, k, v = (_dense(heads) for heads in (q, k, v))
    (B, H, queries, D), (N, n) = q.shape, blocks.shape[2:]
    out, lse = torch.empty_like(q), q.new_empty(B, H, queries, dtype=torch.float32)
    if not out.numel():
        return out, lse
    block_q, block_k, warps, stages = forward
    blocks, allowed, keys, bias = _everywhere(q, blocks, allowed, keys, bias, rows, n * columns)
    with torch.cuda.device_of(q):
        _forward[triton.cdiv(rows, block_q) * N * B * H,](
            q, k, v, out, lse, blocks, allowed, keys, bias, _by(q), _by(k), _by(v), _by(out), _by(blocks),
            _of(allowed), _of(bias), H, k.shape[1], N, queries, k.shape[2], n * columns, 1 / math.sqrt(D),
            R=rows, S=columns, WIDTH=D, PRECISION=precision, BLOCK_Q=block_q, BLOCK_K=block_k, BLOCK_D=_padded(D),
            num_warps=warps, num_stages=stages,
        )  # fmt: skip
    return out, lse


@_attention.register_fake
def _(q: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return torch.empty_like(_dense(q)), q.new_empty(q.shape[:3], dtype=torch.float32)


@operator("tiled_block_sparse_attention_backward")
def _attention_backward(
    d_out: Tensor,
    out: Tensor,
    lse: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    blocks: Tensor,
    allowed: Tensor | None,
    keys: Tensor | None,
    bias: Tensor | None,
    rows: int,
    columns: int,
    precision: str,
    backward: Tiles,
    wants_bias: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    d_out, q, k, v, out = (_dense(heads) for heads in (d_out, q, k, v, out))
    (B, H, queries, D), (G, length), (N, n) = q.shape, k.shape[1:3], blocks.shape[2:]
    d_q, d_k, d_v = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    d_bias = empty_bias(q, bias, wants_bias)
    if not queries * length * n * B:
        return d_q.zero_(), d_k.zero_(), d_v.zero_(), d_bias.zero_()
    own, step, warps, stages = backward
    delta, M = torch.empty_like(lse), triton.cdiv(length, columns)
    turned, ends = turn(blocks, M)
    turned, ends = (x.expand(B, H, -1) for x in (turned, ends))
    blocks, allowed, keys, bias = _everywhere(q, blocks, allowed, keys, bias, rows, n * columns)
    masked = _of(allowed), _of(bias)
    constants = {
        "R": rows, "S": columns, "WIDTH": D, "PRECISION": precision, "BLOCK_D": _padded(D), "num_warps": warps,
        "num_stages": stages,
    }  # fmt: skip
    scale = 1 / math.sqrt(D)
    with torch.cuda.device_of(q):
        _backward_queries[triton.cdiv(rows, own) * N * B * H,](
            q, k, v, out, d_out, lse, delta, d_q, blocks, allowed, keys, bias,
            _by(q), _by(k), _by(v), _by(out), _by(d_out), _by(d_q), _by(blocks), *masked,
            H, G, N, queries, length, n * columns, scale, BLOCK_Q=own, BLOCK_K=step, **constants,
        )  # fmt: skip
        _backward_keys[triton.cdiv(columns, own) * M * B * G,](
            q, k, v, d_out, lse, delta, d_k, d_v, turned, ends, allowed, keys, bias,
            _by(q), _by(k), _by(v), _by(d_out), _by(d_k), _by(d_v), _by(turned), _by(ends), *masked,
            H, G, M, queries, length, n, scale, BLOCK_Q=step, BLOCK_K=own, **constants,
        )  # fmt: skip
        if wants_bias:
            sizes = d_bias.shape[:4]
            whole = B, H, N, rows
            one_row = sizes[3] == 1
            shared = [all_ // one for all_, one in zip(whole[:3], sizes[:3], strict=True)]
            times = (*shared, triton.cdiv(rows, own) if one_row else 1)
            tiles = math.prod(sizes[:3]) * triton.cdiv(sizes[3], own) * triton.cdiv(n * columns, step)
            _backward_bias[tiles,](
                q, k, v, d_out, lse, delta, d_bias, blocks, allowed, keys, bias,
                _by(q), _by(k), _by(v), _by(d_out), _by(blocks), *masked, tuple(sizes), times,
                H, G, queries, length, n * columns, scale, ONE_ROW=one_row, BLOCK_Q=own, BLOCK_K=step, **constants,
            )  # fmt: skip
    return d_q, d_k, d_v, d_bias


@_attention_backward.register_fake
def _(d_out: Any, out: Any, lse: Any, q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    heads = (torch.empty_like(_dense(each)) for each in (q, k, v))
    return *heads, empty_bias(q, rest[3], rest[-1])


def _keep(ctx: Any, inputs: tuple, output: tuple[Tensor, Tensor]) -> None:
    q, k, v, blocks, allowed, keys, bias, *ctx.settings = inputs
    ctx.save_for_backward(*output, q, k, v, blocks, allowed, keys, bias)
    ctx.mark_non_differentiable(output[1])


def _gradients(ctx: Any, d_out: Tensor, _d_lse: Tensor) -> tuple:
    rows, columns, precision, _, backward = ctx.settings
    wants_bias = ctx.needs_input_grad[6]
    settings = rows, columns, precision, backward, wants_bias
    d_q, d_k, d_v, d_bias = _attention_backward(d_out, *ctx.saved_tensors, *settings)
    return d_q, d_k, d_v, None, None, None, d_bias if wants_bias else None, *[None] * 5


_attention.register_autograd(_gradients, setup_context=_keep)


flops_of(_attention)(flops)


@flops_of(_attention_backward)
def _backward_flops(_d_out: tuple, _out: tuple, _lse: tuple, *inputs: Any, **_: Any) -> int:
    return 2 * flops(*inputs)


def turn(blocks: Tensor, M: int) -> tuple[Tensor, Tensor]:
    """The inverse of lists [.., N, n]: their places sorted by the block that they name, [.., N * n], and where the
    places of each block begin and end, [.., M + 1]. The sort is stable, so that the order of sums is fixed.
    """
    places = blocks.flatten(2)
    sorted_, turned = places.sort(dim=2, stable=True)
    numbers = torch.arange(M + 1, device=blocks.device, dtype=blocks.dtype)
    return turned, torch.searchsorted(sorted_, numbers.expand(*blocks.shape[:2], -1).contiguous())


def _everywhere(
    q: Tensor, blocks: Tensor, allowed: Tensor | None, keys: Tensor | None, bias: Tensor | None, rows: int, places: int
) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]:
    """Lists and masks expanded to all axes, with strides of zero instead of copies."""
    B, H, N, n = *q.shape[:2], *blocks.shape[2:]
    whole = B, H, N, rows, places
    allowed, bias = (None if mask is None else _dense(mask).expand(whole) for mask in (allowed, bias))
    return _dense(blocks).expand(B, H, N, n), allowed, None if keys is None else keys.contiguous(), bias


def _of(mask: Tensor | None) -> tuple[int, ...]:
    return (0, 0, 0, 0) if mask is None else _by(mask)
