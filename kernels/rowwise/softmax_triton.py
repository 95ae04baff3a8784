"""Softmax of rows in one pass over memory, forward and backward. N rows, C columns."""

# mypy: allow-incomplete-defs
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.rowwise.rows_triton import wide


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
def _backward(dy_ptr, y_ptr, dx_ptr, dy_stride, N, C, WIDE: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    n = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    c = tl.arange(0, BLOCK)
    inside = (n[:, None] < N) & (c[None, :] < C)
    y = tl.load(y_ptr + n[:, None] * C + c[None, :], mask=inside, other=0.0).to(WIDE)
    g = tl.load(dy_ptr + n[:, None] * dy_stride + c[None, :], mask=inside, other=0.0).to(WIDE)
    dx = y * (g - tl.sum(y * g, 1)[:, None])
    tl.store(dx_ptr + n[:, None] * C + c[None, :], dx.to(dx_ptr.dtype.element_ty), mask=inside)


def forward(x: Tensor, y: Tensor, rows: int, num_warps: int) -> None:
    """Write y [N, C], contiguous; x: [N, C], rows contiguous."""
    N, C = x.shape
    with torch.cuda.device_of(x):
        _forward[(triton.cdiv(N, rows),)](
            x, y, x.stride(0), N, C, WIDE=wide(x.dtype), ROWS=rows, BLOCK=triton.next_power_of_2(C), num_warps=num_warps
        )


def backward(dy: Tensor, y: Tensor, dx: Tensor, rows: int, num_warps: int) -> None:
    """Write dx [N, C]; y and dx contiguous, rows of dy contiguous."""
    N, C = y.shape
    with torch.cuda.device_of(y):
        _backward[(triton.cdiv(N, rows),)](
            dy, y, dx, dy.stride(0), N, C, WIDE=wide(y.dtype), ROWS=rows, BLOCK=triton.next_power_of_2(C),
            num_warps=num_warps,
        )  # fmt: skip
