"""Attention in tiles as an operator of torch: forward, backward, shapes without data, FLOPs.

The kernels are in `attention_kernels_triton`. B batch, H query heads, G key and value heads, Tq queries, Tk keys, D
width of one head.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
from torch import Tensor

from kernels.attention_kernels_triton import _backward_bias, _backward_keys, _backward_queries, _forward
from kernels.flops import flops_of

Tiles = list[int]  # forward: queries, keys; backward: what a program owns, what it steps by; then warps, stages


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
) -> tuple[Tensor, Tensor]:
    """q: [B, H, Tq, D], k and v: [B, G, Tk, D], keys: [B, Tk], bias: [H, Tq, Tk], slopes: [H] -> out, LSE [B, H, Tq].

    A key is read from `left` positions before the query's own to `right` after it, None for all. Under autocast the
    heads are cast as torch's own attention casts them. LSE is for reading: no gradient passes through it.
    """
    device = q.device.type
    if torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        q, k, v = q.to(dtype), k.to(dtype), v.to(dtype)
    scale = 1 / math.sqrt(q.shape[3]) if scale is None else scale
    if triton.knobs.runtime.interpret and q.dtype == torch.bfloat16:
        precision = "widened"
    return _attention(q, k, v, keys, bias, slopes, left, right, scale, precision, forward, backward)


@torch.library.custom_op("tessera::tiled_attention", mutates_args=())
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
    precision: str,
    forward: Tiles,
    backward: Tiles,
) -> tuple[Tensor, Tensor]:
    q, k, v = (_dense(heads) for heads in (q, k, v))
    B, H, queries, D = q.shape
    out = torch.empty_like(q)
    lse = q.new_empty(B, H, queries, dtype=torch.float32)
    if not out.numel():
        return out, lse.fill_(-math.inf)
    rows, columns, warps, stages = forward
    keys, bounds, bias = _prepared(keys, bias)
    with torch.cuda.device_of(q):
        _forward[triton.cdiv(queries, rows) * B * H,](
            q, k, v, out, lse, keys, bounds, bias, slopes, _by(q), _by(k), _by(v), _by(out), _by(bias),
            H, k.shape[1], queries, k.shape[2], left or 0, right or 0, scale,
            WIDTH=D, LEFT=left is not None, RIGHT=right is not None, PRECISION=precision,
            BLOCK_Q=rows, BLOCK_K=columns, BLOCK_D=_padded(D), num_warps=warps, num_stages=stages,
        )  # fmt: skip
    return out, lse


@_attention.register_fake
def _(q: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return torch.empty_like(_dense(q)), q.new_empty(q.shape[:3], dtype=torch.float32)


@torch.library.custom_op("tessera::tiled_attention_backward", mutates_args=())
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
    left: int | None,
    right: int | None,
    scale: float,
    precision: str,
    backward: Tiles,
    wants_bias: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    d_out, q, k, v, out = (_dense(heads) for heads in (d_out, q, k, v, out))
    (B, H, queries, D), (G, length) = q.shape, k.shape[1:3]
    d_q, d_k, d_v = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    d_bias = _empty_bias(q, k, bias, wants_bias)
    if not queries * length * B:
        return d_q.zero_(), d_k.zero_(), d_v.zero_(), d_bias.zero_()
    own, step, warps, stages = backward
    delta = torch.empty_like(lse)
    keys, bounds, bias = _prepared(keys, bias)
    constants = {
        "WIDTH": D, "LEFT": left is not None, "RIGHT": right is not None, "PRECISION": precision,
        "BLOCK_D": _padded(D), "num_warps": warps, "num_stages": stages,
    }  # fmt: skip
    sizes = H, G, queries, length, left or 0, right or 0, scale
    with torch.cuda.device_of(q):
        _backward_queries[triton.cdiv(queries, own) * B * H,](
            q, k, v, out, d_out, lse, delta, d_q, keys, bounds, bias, slopes,
            _by(q), _by(k), _by(v), _by(out), _by(d_out), _by(d_q), _by(bias), *sizes,
            BLOCK_Q=own, BLOCK_K=step, **constants,
        )  # fmt: skip
        _backward_keys[triton.cdiv(length, own) * B * G,](
            q, k, v, d_out, lse, delta, d_k, d_v, keys, bounds, bias, slopes,
            _by(q), _by(k), _by(v), _by(d_out), _by(d_k), _by(d_v), _by(bias), *sizes,
            BLOCK_Q=step, BLOCK_K=own, **constants,
        )  # fmt: skip
        if wants_bias:
            _backward_bias[triton.cdiv(queries, own) * triton.cdiv(length, step) * H,](
                q, k, v, d_out, lse, delta, d_bias, keys, bias, slopes,
                _by(q), _by(k), _by(v), _by(d_out), _by(bias), B, *sizes, BLOCK_Q=own, BLOCK_K=step, **constants,
            )  # fmt: skip
    return d_q, d_k, d_v, d_bias


@_attention_backward.register_fake
def _(d_out: Tensor, q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    heads = (torch.empty_like(_dense(each)) for each in (q, k, v))
    return *heads, _empty_bias(q, k, rest[3], rest[-1])  # type: ignore[return-value]


def _keep(ctx: Any, inputs: tuple, output: tuple[Tensor, Tensor]) -> None:
    q, k, v, keys, bias, slopes, *ctx.settings = inputs
    out, lse = output
    ctx.save_for_backward(q, k, v, out, lse, keys, bias, slopes)
    ctx.mark_non_differentiable(lse)


def _gradients(ctx: Any, d_out: Tensor, _d_lse: Tensor) -> tuple:
    left, right, scale, precision, _, backward = ctx.settings
    wants_bias = ctx.needs_input_grad[4]
    settings = left, right, scale, precision, backward, wants_bias
    d_q, d_k, d_v, d_bias = _attention_backward(d_out, *ctx.saved_tensors, *settings)
    return d_q, d_k, d_v, None, d_bias if wants_bias else None, *[None] * 7


_attention.register_autograd(_gradients, setup_context=_keep)


@flops_of(torch.ops.tessera.tiled_attention)
def _flops(q: tuple, k: tuple, *_: Any, **__: Any) -> int:
    B, H, queries, D = q
    return 4 * B * H * queries * k[2] * D


@flops_of(torch.ops.tessera.tiled_attention_backward)
def _backward_flops(_d_out: tuple, q: tuple, k: tuple, *_: Any, **__: Any) -> int:
    """As of plain attention, whose backward pass computes no scores again."""
    return 2 * _flops(q, k)


def _dense(x: Tensor) -> Tensor:
    """Neighbouring features beside each other, which is all that the kernels ask of a layout."""
    return x if x.stride(-1) == 1 else x.contiguous()


def _prepared(keys: Tensor | None, bias: Tensor | None) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Also the first key and the end of the keys that a sequence may read, so that no tile of padding is visited."""
    bias = None if bias is None else _dense(bias)
    if keys is None:
        return None, None, bias
    places = torch.arange(keys.shape[1], device=keys.device, dtype=torch.int32)
    first = torch.where(keys, places, keys.shape[1]).amin(1) if keys.shape[1] else keys.new_zeros(len(keys))
    last = torch.where(keys, places + 1, 0).amax(1) if keys.shape[1] else keys.new_zeros(len(keys))
    return keys.contiguous(), torch.stack([first, last], dim=1).to(torch.int32), bias


def _empty_bias(q: Tensor, k: Tensor, bias: Tensor | None, wanted: bool) -> Tensor:
    if bias is None or not wanted:
        return q.new_empty(0)
    return bias.new_empty(q.shape[1], q.shape[2], k.shape[2])


def _by(x: Tensor | None) -> tuple[int, ...]:
    """The strides of all but the last axis."""
    return (0, 0) if x is None else x.stride()[:-1]


def _padded(width: int) -> int:
    """A power of two, at least the 16 that a product of tiles takes."""
    return max(16, triton.next_power_of_2(width))
