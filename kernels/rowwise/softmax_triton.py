"""Softmax of rows, forward and backward: in one pass over memory, or in two for wide rows, which are read in steps.

Over steps a running maximum is kept next to the sum of exponentials: Milakov & Gimelshein 2018, "Online normalizer
calculation for softmax", https://arxiv.org/abs/1805.02867, algorithm 3. N rows, C columns.
"""

# mypy: allow-incomplete-defs
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.rowwise.rows_triton import in_steps, wide


@triton.jit
def _forward(x_ptr, y_ptr, x_stride, N, C, WIDE: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    # int64: a row index times its stride overflows 32 bits on long batches
    n = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    c = tl.arange(0, BLOCK)
    inside = (n[:, None] < N) & (c[None, :] < C)
    x = tl.load(x_ptr + n[:, None] * x_stride + c[None, :], mask=inside, other=0.0).to(WIDE)
    x = tl.where(c[None, :] < C, x, -float("inf"))
    e = tl.exp(x - tl.max(x, 1)[:, None])
    y = e / tl.sum(e, 1)[:, None]
    tl.store(y_ptr + n[:, None] * C + c[None, :], y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _forward_in_steps(x_ptr, y_ptr, x_stride, C, WIDE: tl.constexpr, STEP: tl.constexpr):
    n = tl.program_id(0).to(tl.int64)
    row, lane = x_ptr + n * x_stride, tl.arange(0, STEP)
    top = tl.full([STEP], -float("inf"), WIDE)  # one maximum and one sum per lane, combined at the end
    total = tl.zeros([STEP], WIDE)
    for start in range(0, C, STEP):
        c = start + lane
        x = tl.load(row + c, mask=c < C, other=-float("inf"), eviction_policy="evict_last").to(WIDE)
        new = tl.maximum(top, x)
        safe = tl.where(new == -float("inf"), 0.0, new)
        total = total * tl.exp(top - safe) + tl.exp(x - safe)
        top = new
    most = tl.max(top, 0)
    safe = tl.where(most == -float("inf"), 0.0, most)
    scale = 1 / tl.sum(total * tl.exp(top - safe), 0)
    for start in range(0, C, STEP):
        c = start + lane
        x = tl.load(row + c, mask=c < C, other=-float("inf"), eviction_policy="evict_first").to(WIDE)
        y = tl.exp(x - most) * scale  # NaN if the whole row is -inf
        tl.store(y_ptr + n * C + c, y.to(y_ptr.dtype.element_ty), mask=c < C, eviction_policy="evict_first")


@triton.jit
def _backward(dy_ptr, y_ptr, dx_ptr, dy_stride, N, C, WIDE: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    n = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    c = tl.arange(0, BLOCK)
    inside = (n[:, None] < N) & (c[None, :] < C)
    y = tl.load(y_ptr + n[:, None] * C + c[None, :], mask=inside, other=0.0).to(WIDE)
    g = tl.load(dy_ptr + n[:, None] * dy_stride + c[None, :], mask=inside, other=0.0).to(WIDE)
    dx = y * (g - tl.sum(y * g, 1)[:, None])
    tl.store(dx_ptr + n[:, None] * C + c[None, :], dx.to(dx_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _backward_in_steps(dy_ptr, y_ptr, dx_ptr, dy_stride, C, WIDE: tl.constexpr, STEP: tl.constexpr):
    n = tl.program_id(0).to(tl.int64)
    row, lane = dy_ptr + n * dy_stride, tl.arange(0, STEP)
    products = tl.zeros([STEP], WIDE)
    for start in range(0, C, STEP):
        c = start + lane
        y = tl.load(y_ptr + n * C + c, mask=c < C, other=0.0, eviction_policy="evict_last").to(WIDE)
        g = tl.load(row + c, mask=c < C, other=0.0, eviction_policy="evict_last").to(WIDE)
        products += y * g
    total = tl.sum(products, 0)
    for start in range(0, C, STEP):
        c = start + lane
        y = tl.load(y_ptr + n * C + c, mask=c < C, other=0.0, eviction_policy="evict_first").to(WIDE)
        g = tl.load(row + c, mask=c < C, other=0.0, eviction_policy="evict_first").to(WIDE)
        dx = y * (g - total)
        tl.store(dx_ptr + n * C + c, dx.to(dx_ptr.dtype.element_ty), mask=c < C, eviction_policy="evict_first")


def forward(x: Tensor, y: Tensor, rows: int, num_warps: int, step: int) -> None:
    """Write y [N, C], contiguous; x: [N, C], rows contiguous. step: columns at a time, 0 for all."""
    N, C = x.shape
    with torch.cuda.device_of(x):
        if in_steps(step, C):
            _forward_in_steps[(N,)](x, y, x.stride(0), C, WIDE=wide(x.dtype), STEP=step, num_warps=num_warps)
            return
        _forward[(triton.cdiv(N, rows),)](
            x, y, x.stride(0), N, C, WIDE=wide(x.dtype), ROWS=rows, BLOCK=triton.next_power_of_2(C), num_warps=num_warps
        )


def backward(dy: Tensor, y: Tensor, dx: Tensor, rows: int, num_warps: int, step: int) -> None:
    """Write dx [N, C]; y and dx contiguous, rows of dy contiguous. step: columns at a time, 0 for all."""
    N, C = y.shape
    with torch.cuda.device_of(y):
        if in_steps(step, C):
            _backward_in_steps[(N,)](dy, y, dx, dy.stride(0), C, WIDE=wide(y.dtype), STEP=step, num_warps=num_warps)
            return
        _backward[(triton.cdiv(N, rows),)](
            dy, y, dx, dy.stride(0), N, C, WIDE=wide(y.dtype), ROWS=rows, BLOCK=triton.next_power_of_2(C),
            num_warps=num_warps,
        )  # fmt: skip
