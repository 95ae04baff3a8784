"""Random features of rows in one pass, forward and backward; see `kernels.linear_attention.favor_features`.

Forward, a program holds all products of its rows with the M random vectors, so the maximum of a row is known before
anything is written; it steps through the width of a head. Backward, it holds the gradients of whole rows and steps
through the vectors. B batch, H heads, T rows of a head, D width.
"""

# mypy: allow-incomplete-defs
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.rowwise.rows_triton import wide


@triton.jit
def _tile(pointer, row, column, by, rows, columns):
    """[row, column] of a head; zeros outside."""
    at = pointer + row.to(tl.int64)[:, None] * by + column[None, :]
    return tl.load(at, mask=(row < rows)[:, None] & (column < columns)[None, :], other=0.0)


@triton.jit
def _put(pointer, x, row, column, by, rows, columns):
    at = pointer + row.to(tl.int64)[:, None] * by + column[None, :]
    tl.store(at, x.to(pointer.dtype.element_ty), mask=(row < rows)[:, None] & (column < columns)[None, :])


@triton.jit
def _forward(x_ptr, w_ptr, y_ptr, max_ptr, x_by, w_by, H, T, D, M, scale, norm, PERIODIC: tl.constexpr,
             PRECISION: tl.constexpr, WIDE: tl.constexpr, ROWS: tl.constexpr, STEP: tl.constexpr,
             BLOCK_M: tl.constexpr):  # fmt: skip
    tiles = tl.cdiv(T, ROWS)
    t = tl.program_id(0) % tiles * ROWS + tl.arange(0, ROWS)
    head = (tl.program_id(0) // tiles).to(tl.int64)
    m = tl.arange(0, BLOCK_M)
    x_ptr += head // H * x_by[0] + head % H * x_by[1]
    w_ptr += head % H * w_by
    products, square = tl.zeros([ROWS, BLOCK_M], WIDE), tl.zeros([ROWS], WIDE)
    for first in tl.range(0, D, STEP):
        d = first + tl.arange(0, STEP)
        x = _tile(x_ptr, t, d, x_by[2], T, D).to(WIDE) * scale
        w = _tile(w_ptr, m, d, D, M, D).to(WIDE)
        products += tl.dot(x, tl.trans(w), input_precision=PRECISION)
        square += tl.sum(x * x, 1)
    if PERIODIC:
        y_ptr += head * T * 2 * M
        _put(y_ptr, tl.sin(products) * norm, t, m, 2 * M, T, M)
        _put(y_ptr + M, tl.cos(products) * norm, t, m, 2 * M, T, M)
    else:
        e = tl.where(m[None, :] < M, products - square[:, None] / 2, -float("inf"))
        top = tl.max(e, 1)
        _put(y_ptr + head * T * M, tl.exp(e - top[:, None]), t, m, M, T, M)
        tl.store(max_ptr + head * T + t, top, mask=t < T)


@triton.jit
def _backward(dy_ptr, x_ptr, w_ptr, y_ptr, dx_ptr, dy_by, x_by, w_by, H, T, D, M, scale, PERIODIC: tl.constexpr,
              PRECISION: tl.constexpr, WIDE: tl.constexpr, ROWS: tl.constexpr, STEP: tl.constexpr,
              BLOCK_D: tl.constexpr):  # fmt: skip
    tiles = tl.cdiv(T, ROWS)
    t = tl.program_id(0) % tiles * ROWS + tl.arange(0, ROWS)
    head = (tl.program_id(0) // tiles).to(tl.int64)
    d = tl.arange(0, BLOCK_D)
    dy_ptr += head // H * dy_by[0] + head % H * dy_by[1]
    x_ptr += head // H * x_by[0] + head % H * x_by[1]
    w_ptr += head % H * w_by
    dx, total = tl.zeros([ROWS, BLOCK_D], WIDE), tl.zeros([ROWS], WIDE)
    for first in tl.range(0, M, STEP):
        m = first + tl.arange(0, STEP)
        if PERIODIC:
            sines = y_ptr + head * T * 2 * M
            g = _tile(dy_ptr, t, m, dy_by[2], T, M).to(WIDE) * _tile(sines + M, t, m, 2 * M, T, M)
            g -= _tile(dy_ptr + M, t, m, dy_by[2], T, M).to(WIDE) * _tile(sines, t, m, 2 * M, T, M)
        else:
            g = _tile(dy_ptr, t, m, dy_by[2], T, M).to(WIDE) * _tile(y_ptr + head * T * M, t, m, M, T, M)
            total += tl.sum(g, 1)
        dx += tl.dot(g, _tile(w_ptr, m, d, D, M, D).to(WIDE), input_precision=PRECISION)
    if not PERIODIC:
        dx -= (total * scale)[:, None] * _tile(x_ptr, t, d, x_by[2], T, D).to(WIDE)
    _put(dx_ptr + head * T * D, dx * scale, t, d, D, T, D)


def _dense(x: Tensor) -> Tensor:
    return x if x.stride(-1) == 1 else x.contiguous()


def forward(
    x: Tensor, W: Tensor, y: Tensor, maxima: Tensor, scale: float, kind: str, rows: int, step: int, num_warps: int,
    precision: str,
) -> None:  # fmt: skip
    """Write y [B, H, T, F] and maxima [B, H, T, 1], both contiguous; x: [B, H, T, D], W: [M, D] or [H, M, D]."""
    x, W, (B, H, T, D), M = _dense(x), W.contiguous(), x.shape, W.shape[-2]
    if kind == "periodic":
        maxima.zero_()
    with torch.cuda.device_of(x):
        _forward[(triton.cdiv(T, rows) * B * H,)](
            x, W, y, maxima, x.stride()[:3], M * D if W.dim() == 3 else 0, H, T, D, M, scale, M**-0.5,
            PERIODIC=kind == "periodic", PRECISION=precision, WIDE=wide(y.dtype), ROWS=rows, STEP=step,
            BLOCK_M=max(16, triton.next_power_of_2(M)), num_warps=num_warps, num_stages=2,
        )  # fmt: skip


def backward(
    dy: Tensor, x: Tensor, W: Tensor, y: Tensor, dx: Tensor, scale: float, kind: str, rows: int, step: int,
    num_warps: int, precision: str,
) -> None:  # fmt: skip
    """Write dx [B, H, T, D], contiguous; y contiguous."""
    dy, x, W, (B, H, T, D), M = _dense(dy), _dense(x), W.contiguous(), x.shape, W.shape[-2]
    with torch.cuda.device_of(x):
        _backward[(triton.cdiv(T, rows) * B * H,)](
            dy, x, W, y, dx, dy.stride()[:3], x.stride()[:3], M * D if W.dim() == 3 else 0, H, T, D, M, scale,
            PERIODIC=kind == "periodic", PRECISION=precision, WIDE=wide(y.dtype), ROWS=rows, STEP=step,
            BLOCK_D=max(16, triton.next_power_of_2(D)), num_warps=num_warps, num_stages=2,
        )  # fmt: skip
