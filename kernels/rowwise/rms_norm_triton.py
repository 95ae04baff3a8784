"""RMSNorm in one pass over memory; see `kernels.rowwise.rms_norm` for the formula. Forward, wide rows may be read in
steps, in two passes.

The gradient of the gain is a sum over all rows. Each program sums its own rows in registers and writes one partial sum,
so the result does not depend on the order in which programs run. N rows, C columns.
"""

# mypy: allow-incomplete-defs
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.rowwise.rows_triton import in_steps, warps_of_whole_rows, wide


@triton.jit
def _forward(x_ptr, w_ptr, y_ptr, scale_ptr, x_stride, N, C, EPS: tl.constexpr, WIDE: tl.constexpr,
             ROWS: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    # int64: a row index times its stride overflows 32 bits on long batches
    n = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    c = tl.arange(0, BLOCK)
    inside = (n[:, None] < N) & (c[None, :] < C)
    x = tl.load(x_ptr + n[:, None] * x_stride + c[None, :], mask=inside, other=0.0).to(WIDE)
    scale = 1 / tl.sqrt(tl.sum(x * x, 1) / C + EPS)
    y = x * scale[:, None]
    if w_ptr is not None:
        y *= tl.load(w_ptr + c, mask=c < C, other=0.0).to(WIDE)[None, :]
    tl.store(y_ptr + n[:, None] * C + c[None, :], y.to(y_ptr.dtype.element_ty), mask=inside)
    tl.store(scale_ptr + n, scale, mask=n < N)


@triton.jit
def _forward_in_steps(x_ptr, w_ptr, y_ptr, scale_ptr, x_stride, C, EPS: tl.constexpr, WIDE: tl.constexpr,
                      STEP: tl.constexpr):  # fmt: skip
    n = tl.program_id(0).to(tl.int64)
    row, lane = x_ptr + n * x_stride, tl.arange(0, STEP)
    squares = tl.zeros([STEP], WIDE)
    for start in range(0, C, STEP):
        c = start + lane
        x = tl.load(row + c, mask=c < C, other=0.0, eviction_policy="evict_last").to(WIDE)
        squares += x * x
    scale = 1 / tl.sqrt(tl.sum(squares, 0) / C + EPS)
    for start in range(0, C, STEP):
        c = start + lane
        y = tl.load(row + c, mask=c < C, other=0.0, eviction_policy="evict_first").to(WIDE) * scale
        if w_ptr is not None:
            y *= tl.load(w_ptr + c, mask=c < C, other=0.0, eviction_policy="evict_last").to(WIDE)
        tl.store(y_ptr + n * C + c, y.to(y_ptr.dtype.element_ty), mask=c < C, eviction_policy="evict_first")
    tl.store(scale_ptr + n, scale)


@triton.jit
def _backward(dy_ptr, x_ptr, w_ptr, scale_ptr, dx_ptr, dw_ptr, dy_stride, x_stride, N, C, WIDE: tl.constexpr,
              ROWS: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    c = tl.arange(0, BLOCK)
    if w_ptr is not None:
        w = tl.load(w_ptr + c, mask=c < C, other=0.0).to(WIDE)[None, :]
    dw = tl.zeros([ROWS, BLOCK], WIDE)
    for block in range(tl.program_id(0), tl.cdiv(N, ROWS), tl.num_programs(0)):
        n = tl.cast(block, tl.int64) * ROWS + tl.arange(0, ROWS)
        inside = (n[:, None] < N) & (c[None, :] < C)
        x = tl.load(x_ptr + n[:, None] * x_stride + c[None, :], mask=inside, other=0.0).to(WIDE)
        g = tl.load(dy_ptr + n[:, None] * dy_stride + c[None, :], mask=inside, other=0.0).to(WIDE)
        scale = tl.load(scale_ptr + n, mask=n < N, other=0.0)[:, None]
        x *= scale
        if w_ptr is not None:
            dw += g * x
            g *= w
        dx = scale * (g - x * (tl.sum(g * x, 1) / C)[:, None])
        tl.store(dx_ptr + n[:, None] * C + c[None, :], dx.to(dx_ptr.dtype.element_ty), mask=inside)
    if w_ptr is not None:
        at = tl.program_id(0).to(tl.int64) * C + c
        tl.store(dw_ptr + at, tl.sum(dw, 0), mask=c < C)


def forward(
    x: Tensor, weight: Tensor | None, y: Tensor, scale: Tensor, eps: float, rows: int, num_warps: int, step: int
) -> None:
    """Write y [N, C] and scale [N]; x: [N, C], rows contiguous. step: columns at a time, 0 for all."""
    N, C = x.shape
    weight = None if weight is None else weight.contiguous()
    with torch.cuda.device_of(x):
        if in_steps(step, C):
            _forward_in_steps[(N,)](
                x, weight, y, scale, x.stride(0), C, EPS=eps, WIDE=wide(scale.dtype), STEP=step, num_warps=num_warps
            )
            return
        _forward[(triton.cdiv(N, rows),)](
            x, weight, y, scale, x.stride(0), N, C, EPS=eps, WIDE=wide(scale.dtype), ROWS=rows,
            BLOCK=triton.next_power_of_2(C), num_warps=num_warps,
        )  # fmt: skip


def backward(
    dy: Tensor, x: Tensor, weight: Tensor | None, scale: Tensor, dx: Tensor, rows: int, num_warps: int, programs: int,
    step: int,
) -> Tensor | None:  # fmt: skip
    """Write dx [N, C]; return the gradient of the gain, [C] in float32 or wider."""
    N, C = x.shape
    weight = None if weight is None else weight.contiguous()
    programs = min(programs, triton.cdiv(N, rows))
    partial = None if weight is None else torch.empty(programs, C, dtype=scale.dtype, device=x.device)
    with torch.cuda.device_of(x):
        _backward[(programs,)](
            dy, x, weight, scale, dx, partial, dy.stride(0), x.stride(0), N, C, WIDE=wide(scale.dtype), ROWS=rows,
            BLOCK=triton.next_power_of_2(C), num_warps=warps_of_whole_rows(step, C, num_warps),
        )  # fmt: skip
    return None if partial is None else partial.sum(0)
