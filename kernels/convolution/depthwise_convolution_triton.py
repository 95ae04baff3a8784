"""Depthwise convolution over tiles of positions and channels, forward and backward.

See `kernels.convolution.depthwise_convolution`. The gradient of the input is the same sum with taps that look back. The
gradient of the taps is a sum over all positions: each program sums its own tiles in registers and writes one partial
sum, so the result does not depend on the order in which programs run. B batch, T time, C channels, K taps; row c // D
of the taps is for channel c.
"""

# mypy: allow-incomplete-defs
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.rowwise.rows import wide as wide_dtype
from kernels.rowwise.rows_triton import wide

TAPS = 8  # of the partial sums of a program


@triton.jit
def _convolve(x_ptr, w_ptr, y_ptr, x_b, x_t, x_c, read, written, C, D, H, K: tl.constexpr, STEP: tl.constexpr,
              WIDE: tl.constexpr, TIME: tl.constexpr, CHANNELS: tl.constexpr):  # fmt: skip
    """y_t = sum_k w_k x_{t + STEP k}; x is zero before position 0 and from `read` on; y has `written` positions."""
    blocks = tl.cdiv(written, TIME)
    # int64: a position times its stride overflows 32 bits on long batches
    b = (tl.program_id(0) // blocks).to(tl.int64)
    t = (tl.program_id(0) % blocks).to(tl.int64) * TIME + tl.arange(0, TIME)
    c = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    y = tl.zeros([TIME, CHANNELS], WIDE)
    for k in tl.range(0, K, loop_unroll_factor=4):
        at = t + STEP * k
        inside = ((at >= 0) & (at < read))[:, None] & (c < C)[None, :]
        x = tl.load(x_ptr + b * x_b + at[:, None] * x_t + c.to(tl.int64)[None, :] * x_c, mask=inside, other=0.0)
        w = tl.load(w_ptr + k * H + (c // D)[None, :], mask=(c < C)[None, :], other=0.0)
        y += x.to(WIDE) * w.to(WIDE)
    inside = (t < written)[:, None] & (c < C)[None, :]
    tl.store(y_ptr + (b * written + t)[:, None] * C + c[None, :], y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _products(dy_ptr, x_ptr, dw_ptr, dy_b, dy_t, dy_c, x_b, x_t, x_c, B, T, C, K, WIDE: tl.constexpr,
              TAPS: tl.constexpr, TIME: tl.constexpr, CHANNELS: tl.constexpr):  # fmt: skip
    """The partial sums dw: [programs, K, C]."""
    blocks = tl.cdiv(T, TIME)
    c = (tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)).to(tl.int64)
    k = tl.program_id(2) * TAPS + tl.arange(0, TAPS)
    sums = tl.zeros([TAPS, TIME, CHANNELS], WIDE)
    for block in range(tl.program_id(0), B * blocks, tl.num_programs(0)):
        b = tl.cast(block // blocks, tl.int64)
        t = tl.cast(block % blocks, tl.int64) * TIME + tl.arange(0, TIME)
        inside = (t < T)[:, None] & (c < C)[None, :]
        dy = tl.load(dy_ptr + b * dy_b + t[:, None] * dy_t + c[None, :] * dy_c, mask=inside, other=0.0)
        near = (t[None, :] + k[:, None])[:, :, None] * x_t + c[None, None, :] * x_c
        x = tl.load(x_ptr + b * x_b + near, mask=inside[None, :, :] & (k < K)[:, None, None], other=0.0)
        sums += dy.to(WIDE)[None, :, :] * x.to(WIDE)
    at = dw_ptr + (tl.program_id(0) * K + k).to(tl.int64)[:, None] * C + c[None, :]
    tl.store(at, tl.sum(sums, 1), mask=(k < K)[:, None] & (c < C)[None, :])


def convolve(x: Tensor, weight: Tensor, y: Tensor, step: int, tiles: list[int]) -> None:
    """Write y, contiguous, from x in any layout; weight: [H, K]. step: 1 forward, -1 for the gradient of the input."""
    time, channels, num_warps, _ = tiles
    B, T, C = y.shape
    H, K = weight.shape
    with torch.cuda.device_of(x):
        _convolve[(B * triton.cdiv(T, time), triton.cdiv(C, channels))](
            x, weight.t().contiguous(), y, *x.stride(), x.shape[1], T, C, C // H, H, K=K, STEP=step,
            WIDE=wide(wide_dtype(x)), TIME=time, CHANNELS=channels, num_warps=num_warps,
        )  # fmt: skip


def products(dy: Tensor, x: Tensor, weight: Tensor, tiles: list[int]) -> Tensor:
    """The gradient of the taps, [H, K] in float32 or wider; dy: [B, T, C] and x: [B, T + K - 1, C] in any layout."""
    time, channels, num_warps, programs = tiles
    B, T, C = dy.shape
    H, K = weight.shape
    taps = min(TAPS, triton.next_power_of_2(K))
    time = max(1, time // taps)
    programs = min(programs, B * triton.cdiv(T, time))
    partial = torch.empty(programs, K, C, dtype=wide_dtype(x), device=x.device)
    with torch.cuda.device_of(x):
        _products[(programs, triton.cdiv(C, channels), triton.cdiv(K, taps))](
            dy, x, partial, *dy.stride(), *x.stride(), B, T, C, K, WIDE=wide(partial.dtype), TAPS=taps, TIME=time,
            CHANNELS=channels, num_warps=num_warps,
        )  # fmt: skip
    return partial.sum(0).unflatten(1, (H, -1)).sum(2).t()
