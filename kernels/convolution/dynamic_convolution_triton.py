"""Dynamic convolution over tiles of positions of one head, forward and backward.

See `kernels.convolution.dynamic_convolution`. The gradient of the input is the same sum with taps that look back: the
taps of the positions that read it. The gradient of a tap is a sum over the channels of its head, which one program
holds. B batch, T time, H heads, D channels of a head, K taps.
"""

# mypy: allow-incomplete-defs
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.convolution.shifted import WIDEST
from kernels.rowwise.rows import wide as wide_dtype
from kernels.rowwise.rows_triton import wide

TAPS = 16  # the number of taps whose gradients a program sums


@triton.jit
def _place(T, H, TIME: tl.constexpr):
    """Batch, positions and head of a program, in 64 bits; the heads of one position are next to each other."""
    blocks = tl.cdiv(T, TIME)
    h = (tl.program_id(0) % H).to(tl.int64)
    block = tl.program_id(0) // H
    b = (block // blocks).to(tl.int64)
    return b, (block % blocks).to(tl.int64) * TIME + tl.arange(0, TIME), h


@triton.jit
def _convolve(x_ptr, w_ptr, y_ptr, x_b, x_t, x_c, w_b, w_t, w_h, w_k, T, written, H, D, K, STEP: tl.constexpr,
              WIDE: tl.constexpr, TIME: tl.constexpr, WIDTH: tl.constexpr):  # fmt: skip
    """y_t = sum_k w_{t,k} x_{t+k} if STEP is 1, sum_k w_{t-k,k} x_{t-k} if it is -1; taps exist for T positions."""
    b, t, h = _place(written, H, TIME)
    d = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    y = tl.zeros([TIME, WIDTH], WIDE)
    for k in tl.range(0, K, loop_unroll_factor=4):
        at = t + STEP * k
        own = t if STEP == 1 else at  # the position that the taps belong to
        inside = (own >= 0) & (own < T)
        x_at = x_ptr + b * x_b + at[:, None] * x_t + (h * D + d)[None, :] * x_c
        x = tl.load(x_at, mask=inside[:, None] & (d < D)[None, :], other=0.0)
        w = tl.load(w_ptr + b * w_b + own * w_t + h * w_h + k * w_k, mask=inside, other=0.0)
        y += w.to(WIDE)[:, None] * x.to(WIDE)
    y_at = y_ptr + ((b * written + t)[:, None] * H + h) * D + d[None, :]
    tl.store(y_at, y.to(y_ptr.dtype.element_ty), mask=(t < written)[:, None] & (d < D)[None, :])


@triton.jit
def _products(dy_ptr, x_ptr, dw_ptr, dy_b, dy_t, dy_c, x_b, x_t, x_c, T, H, D, K, WIDE: tl.constexpr,
              TAPS: tl.constexpr, TIME: tl.constexpr, WIDTH: tl.constexpr):  # fmt: skip
    b, t, h = _place(T, H, TIME)
    k = tl.program_id(1) * TAPS + tl.arange(0, TAPS)
    sums = tl.zeros([TIME, TAPS], WIDE)
    for start in range(0, D, WIDTH):
        d = start + tl.arange(0, WIDTH)
        c = (h * D + d)[None, :]
        inside = (t < T)[:, None] & (d < D)[None, :]
        dy = tl.load(dy_ptr + b * dy_b + t[:, None] * dy_t + c * dy_c, mask=inside, other=0.0).to(WIDE)
        for tap in tl.range(0, TAPS, loop_unroll_factor=4):
            at = t + tl.program_id(1) * TAPS + tap
            near = inside & (at < T + K - 1)[:, None]  # taps beyond K are not stored
            x = tl.load(x_ptr + b * x_b + at[:, None] * x_t + c * x_c, mask=near, other=0.0)
            each = tl.sum(dy * x.to(WIDE), 1)
            sums += tl.where((tl.arange(0, TAPS) == tap)[None, :], each[:, None], 0.0)
    w_at = dw_ptr + ((b * T + t)[:, None] * H + h) * K + k[None, :]
    tl.store(w_at, sums.to(dw_ptr.dtype.element_ty), mask=(t < T)[:, None] & (k < K)[None, :])


def convolve(x: Tensor, taps: Tensor, y: Tensor, step: int, tiles: list[int]) -> None:
    """Write y, contiguous; x: [B, .., C] and taps: [B, T, H, K] in any layout. step: 1 forward, -1 for the gradient of
    x.
    """
    time, num_warps = tiles
    B, written, C = y.shape
    _, T, H, K = taps.shape
    width = _width(C // H)
    with torch.cuda.device_of(x):
        _convolve[(B * H * triton.cdiv(written, time), triton.cdiv(C // H, width))](
            x, taps, y, *x.stride(), *taps.stride(), T, written, H, C // H, K, STEP=step, WIDE=wide(wide_dtype(x)),
            TIME=time, WIDTH=width, num_warps=num_warps,
        )  # fmt: skip


def products(dy: Tensor, x: Tensor, d_taps: Tensor, tiles: list[int]) -> None:
    """Write the gradient of the taps, [B, T, H, K], contiguous; dy and x in any layout."""
    time, num_warps = tiles
    B, T, H, K = d_taps.shape
    D = dy.shape[2] // H
    count = min(TAPS, triton.next_power_of_2(K))
    with torch.cuda.device_of(x):
        _products[(B * H * triton.cdiv(T, time), triton.cdiv(K, count))](
            dy, x, d_taps, *dy.stride(), *x.stride(), T, H, D, K, WIDE=wide(wide_dtype(x)), TAPS=count, TIME=time,
            WIDTH=_width(D), num_warps=num_warps,
        )  # fmt: skip


def _width(D: int) -> int:
    return min(WIDEST, triton.next_power_of_2(D))
