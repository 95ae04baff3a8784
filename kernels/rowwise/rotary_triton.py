"""Rotations of pairs in one pass over memory, for heads in any layout whose channels are contiguous."""

# mypy: allow-incomplete-defs
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.rowwise.rows_triton import wide


@triton.jit
def _rotate(x_ptr, cos_ptr, sin_ptr, y_ptr, b_stride, h_stride, t_stride, N, H, T, P, BETWEEN: tl.constexpr,
            APART: tl.constexpr, WIDE: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    # int64: a row index times its stride overflows 32 bits on long batches
    n = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    p = tl.arange(0, BLOCK)
    inside = (n[:, None] < N) & (p[None, :] < P)
    t = n % T
    x = x_ptr + (n // T // H * b_stride + n // T % H * h_stride + t * t_stride)[:, None] + p[None, :] * BETWEEN
    table = t[:, None] * P + p[None, :]
    cos = tl.load(cos_ptr + table, mask=inside, other=0.0)
    sin = tl.load(sin_ptr + table, mask=inside, other=0.0)
    apart = P if APART == 0 else APART
    first = tl.load(x, mask=inside, other=0.0).to(WIDE)
    second = tl.load(x + apart, mask=inside, other=0.0).to(WIDE)
    y = y_ptr + n[:, None] * 2 * P + p[None, :] * BETWEEN
    tl.store(y, (first * cos - second * sin).to(y_ptr.dtype.element_ty), mask=inside)
    tl.store(y + apart, (first * sin + second * cos).to(y_ptr.dtype.element_ty), mask=inside)


def rotate(x: Tensor, cos: Tensor, sin: Tensor, y: Tensor, interleaved: bool, rows: int, num_warps: int) -> None:
    """Write y, contiguous. x: [B, H, T, D], channels contiguous; cos, sin: [T, D/2]."""
    B, H, T, D = x.shape
    with torch.cuda.device_of(x):
        _rotate[(triton.cdiv(B * H * T, rows),)](
            x, cos, sin, y, x.stride(0), x.stride(1), x.stride(2), B * H * T, H, T, D // 2,
            BETWEEN=2 if interleaved else 1, APART=1 if interleaved else 0, WIDE=wide(x.dtype), ROWS=rows,
            BLOCK=triton.next_power_of_2(D // 2), num_warps=num_warps,
        )  # fmt: skip
