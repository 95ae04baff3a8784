"""Sums of products with the numbers k places further, which all convolutions over time need.

y_i = sum_k w_{k,i} x_{i+k}, so dx_j = sum_k w_{k,j-k} dy_{j-k} and dw_{k,i} = dy_i x_{i+k}. On a CPU, a block of
positions is in the cache while all K taps pass over it; it is summed in float32 or wider. B batch, T time, K taps.
Further axes are multiplied element by element; with a stride of 0, w can be the same at all positions or in all
channels of a head.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from kernels.rowwise import rows as by_rows

WIDEST = 128  # channels of a head that a program of a Triton kernel computes at a time


def weighted(x: Tensor, weights: Tensor, y: Tensor, positions: int) -> None:
    """Write y, [B, T, ...]; x: [B, T + K - 1, ...], weights: [K, B, T, ...]."""
    wide = by_rows.wide(x)
    for part in by_rows.parts(y.shape[1], positions):
        near = x[:, part.start : part.stop + len(weights) - 1].to(wide)
        total = torch.zeros_like(y[:, part], dtype=wide)
        for k, weight in enumerate(weights):
            total.addcmul_(near[:, k : k + total.shape[1]], weight[:, part].to(wide))
        y[:, part] = total


def returned(dy: Tensor, weights: Tensor, positions: int) -> Tensor:
    """The gradient dx: [B, T + K - 1, ...] for dy: [B, T, ...]; weights as for `weighted`."""
    B, T, *rest = dy.shape
    wide = by_rows.wide(dy)
    dx = dy.new_zeros(B, T + len(weights) - 1, *rest, dtype=wide)
    for part in by_rows.parts(T, positions):
        back = dy[:, part].to(wide)
        for k, weight in enumerate(weights):
            dx[:, part.start + k : part.stop + k].addcmul_(back, weight[:, part].to(wide))
    return dx.to(dy.dtype)


def products(dy: Tensor, x: Tensor, taps: int, positions: int) -> Iterator[tuple[int, slice, Tensor]]:
    """(k, part, dy_i x_{i+k} for the positions i of that part), each [B, P, ...]; dy: [B, T, ...], x: [B, T + K - 1,
    ...].
    """
    wide = by_rows.wide(x)
    for part in by_rows.parts(dy.shape[1], positions):
        back, near = dy[:, part].to(wide), x[:, part.start : part.stop + taps - 1].to(wide)
        for k in range(taps):
            yield k, part, back * near[:, k : k + back.shape[1]]


def differentiable(forward: Any, backward: Any) -> None:
    """Register the derivatives of two custom operators, each expressed by the other, so that derivatives of any order
    exist.

    forward: (x, w, how, tiles) -> y, linear in x and in w. backward: (dy, x, w, how, tiles, wants) -> (dx, dw); a
    gradient is empty if `wants` says that it is not needed.
    """

    def keep(ctx: Any, inputs: tuple, output: Tensor) -> None:
        x, w, *ctx.settings = inputs
        ctx.save_for_backward(x, w)

    def gradients(ctx: Any, dy: Tensor) -> tuple:
        wants = list(ctx.needs_input_grad[:2])
        found = backward(dy, *ctx.saved_tensors, *ctx.settings, wants)
        return *(each if wanted else None for each, wanted in zip(found, wants)), None, None

    def keep_more(ctx: Any, inputs: tuple, output: tuple[Tensor, Tensor]) -> None:
        dy, x, w, *ctx.settings, ctx.wants = inputs
        ctx.save_for_backward(dy, x, w)

    def second(ctx: Any, ddx: Tensor, ddw: Tensor) -> tuple:
        dy, x, w = ctx.saved_tensors
        d_dy = d_x = d_w = None
        if ctx.wants[0]:
            d_dy = forward(ddx, w, *ctx.settings)
            d_w = backward(dy, ddx, w, *ctx.settings, [False, True])[1]
        if ctx.wants[1]:
            more = forward(x, ddw, *ctx.settings)
            d_dy = more if d_dy is None else d_dy + more
            d_x = backward(dy, x, ddw, *ctx.settings, [True, False])[0]
        return d_dy, d_x, d_w, None, None, None

    forward.register_autograd(gradients, setup_context=keep)
    backward.register_autograd(second, setup_context=keep_more)


def empty_gradients(x: Tensor, w: Tensor, wants: list[bool]) -> tuple[Tensor, Tensor]:
    """Memory for dx and dw, in the shapes of x and w; empty if not needed."""
    return x.new_empty(x.shape if wants[0] else 0), w.new_empty(w.shape if wants[1] else 0)
