"""Layer normalisation in one pass over memory, with the preceding addition; see `kernels.rowwise.layer_norm`.

Forward, wide rows may be read in steps, in two passes. Means and squared deviations of parts of a row are combined as
in Chan et al. 1983, "Algorithms for computing the sample variance", https://doi.org/10.1080/00031305.1983.10483115, so
a large mean costs no precision.

Each program of the backward pass sums the gradients of gain and bias over its own rows in registers and writes one
partial sum. So the result does not depend on the order in which programs run. N rows, C columns.
"""

# mypy: allow-incomplete-defs
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.rowwise.rows_triton import in_steps, warps_of_whole_rows, wide


@triton.jit
def _forward(x_ptr, r_ptr, w_ptr, b_ptr, y_ptr, total_ptr, mean_ptr, scale_ptr, x_stride, r_stride, N, C,
             EPS: tl.constexpr, WIDE: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    # int64: a row index times its stride overflows 32 bits on long batches
    n = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    c = tl.arange(0, BLOCK)
    inside = (n[:, None] < N) & (c[None, :] < C)
    at = n[:, None] * C + c[None, :]
    x = tl.load(x_ptr + n[:, None] * x_stride + c[None, :], mask=inside, other=0.0).to(WIDE)
    if r_ptr is not None:
        x += tl.load(r_ptr + n[:, None] * r_stride + c[None, :], mask=inside, other=0.0).to(WIDE)
        rounded = x.to(total_ptr.dtype.element_ty)
        tl.store(total_ptr + at, rounded, mask=inside)
        x = rounded.to(WIDE)  # the norm reads the same rounded sum that is returned
    mean = tl.sum(x, 1) / C
    x = tl.where(inside, x - mean[:, None], 0.0)
    scale = 1 / tl.sqrt(tl.sum(x * x, 1) / C + EPS)
    y = x * scale[:, None]
    if w_ptr is not None:
        y *= tl.load(w_ptr + c, mask=c < C, other=0.0).to(WIDE)[None, :]
    if b_ptr is not None:
        y += tl.load(b_ptr + c, mask=c < C, other=0.0).to(WIDE)[None, :]
    tl.store(y_ptr + at, y.to(y_ptr.dtype.element_ty), mask=inside)
    tl.store(mean_ptr + n, mean, mask=n < N)
    tl.store(scale_ptr + n, scale, mask=n < N)


@triton.jit
def _forward_in_steps(x_ptr, r_ptr, w_ptr, b_ptr, y_ptr, total_ptr, mean_ptr, scale_ptr, x_stride, r_stride, C,
                      EPS: tl.constexpr, WIDE: tl.constexpr, STEP: tl.constexpr):  # fmt: skip
    n = tl.program_id(0).to(tl.int64)
    row, lane = x_ptr + n * x_stride, tl.arange(0, STEP)
    means = tl.zeros([STEP], WIDE)  # of the numbers of each lane, and the sums of their squared deviations
    squares = tl.zeros([STEP], WIDE)
    for start in range(0, C, STEP):
        c = start + lane
        if r_ptr is None:
            x = tl.load(row + c, mask=c < C, other=0.0, eviction_policy="evict_last").to(WIDE)
        else:
            x = tl.load(row + c, mask=c < C, other=0.0, eviction_policy="evict_first").to(WIDE)
            x += tl.load(r_ptr + n * r_stride + c, mask=c < C, other=0.0, eviction_policy="evict_first").to(WIDE)
            rounded = x.to(total_ptr.dtype.element_ty)
            tl.store(total_ptr + n * C + c, rounded, mask=c < C, eviction_policy="evict_last")
            x = rounded.to(WIDE)  # the norm reads the same rounded sum that is returned
        change = tl.where(c < C, x - means, 0.0)
        means += change * (1 / tl.cast(start // STEP + 1, WIDE))
        squares += change * (x - means)
    counts = tl.cdiv(C - lane, STEP).to(WIDE)
    mean = tl.sum(means * counts, 0) / C
    apart = means - mean
    scale = 1 / tl.sqrt(tl.sum(squares + counts * apart * apart, 0) / C + EPS)
    if r_ptr is not None:
        tl.debug_barrier()  # a thread may read sums that another thread has written
        row = total_ptr + n * C
    for start in range(0, C, STEP):
        c = start + lane
        x = tl.load(row + c, mask=c < C, other=0.0, eviction_policy="evict_first").to(WIDE)
        y = (x - mean) * scale
        if w_ptr is not None:
            y *= tl.load(w_ptr + c, mask=c < C, other=0.0, eviction_policy="evict_last").to(WIDE)
        if b_ptr is not None:
            y += tl.load(b_ptr + c, mask=c < C, other=0.0, eviction_policy="evict_last").to(WIDE)
        tl.store(y_ptr + n * C + c, y.to(y_ptr.dtype.element_ty), mask=c < C, eviction_policy="evict_first")
    tl.store(mean_ptr + n, mean)
    tl.store(scale_ptr + n, scale)


@triton.jit
def _backward(dy_ptr, dtotal_ptr, x_ptr, w_ptr, mean_ptr, scale_ptr, dx_ptr, dw_ptr, db_ptr, dy_stride, dtotal_stride,
              x_stride, N, C, WIDE: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    c = tl.arange(0, BLOCK)
    if w_ptr is not None:
        w = tl.load(w_ptr + c, mask=c < C, other=0.0).to(WIDE)[None, :]
    dw = tl.zeros([ROWS, BLOCK], WIDE)
    db = tl.zeros([ROWS, BLOCK], WIDE)
    for block in range(tl.program_id(0), tl.cdiv(N, ROWS), tl.num_programs(0)):
        n = tl.cast(block, tl.int64) * ROWS + tl.arange(0, ROWS)
        inside = (n[:, None] < N) & (c[None, :] < C)
        x = tl.load(x_ptr + n[:, None] * x_stride + c[None, :], mask=inside, other=0.0).to(WIDE)
        g = tl.load(dy_ptr + n[:, None] * dy_stride + c[None, :], mask=inside, other=0.0).to(WIDE)
        mean = tl.load(mean_ptr + n, mask=n < N, other=0.0)[:, None]
        scale = tl.load(scale_ptr + n, mask=n < N, other=0.0)[:, None]
        x = tl.where(inside, (x - mean) * scale, 0.0)
        if db_ptr is not None:
            db += g
        if w_ptr is not None:
            dw += g * x
            g *= w
        dx = scale * (g - (tl.sum(g, 1) / C)[:, None] - x * (tl.sum(g * x, 1) / C)[:, None])
        if dtotal_ptr is not None:
            dx += tl.load(dtotal_ptr + n[:, None] * dtotal_stride + c[None, :], mask=inside, other=0.0).to(WIDE)
        tl.store(dx_ptr + n[:, None] * C + c[None, :], dx.to(dx_ptr.dtype.element_ty), mask=inside)
    at = tl.program_id(0).to(tl.int64) * C + c
    if w_ptr is not None:
        tl.store(dw_ptr + at, tl.sum(dw, 0), mask=c < C)
    if db_ptr is not None:
        tl.store(db_ptr + at, tl.sum(db, 0), mask=c < C)


def forward(
    x: Tensor, residual: Tensor | None, weight: Tensor | None, bias: Tensor | None, y: Tensor, total: Tensor | None,
    mean: Tensor, scale: Tensor, eps: float, rows: int, num_warps: int, step: int,
) -> None:  # fmt: skip
    """Write y, total (if there is a residual), mean and scale; x and residual: [N, C], rows contiguous; mean, scale:
    [N]. step: columns at a time, 0 for all.
    """
    N, C = x.shape
    weight, bias = (None if each is None else each.contiguous() for each in (weight, bias))
    r_stride = 0 if residual is None else residual.stride(0)
    with torch.cuda.device_of(x):
        if in_steps(step, C):
            _forward_in_steps[(N,)](
                x, residual, weight, bias, y, total, mean, scale, x.stride(0), r_stride, C, EPS=eps,
                WIDE=wide(scale.dtype), STEP=step, num_warps=num_warps,
            )  # fmt: skip
            return
        _forward[(triton.cdiv(N, rows),)](
            x, residual, weight, bias, y, total, mean, scale, x.stride(0), r_stride, N, C, EPS=eps,
            WIDE=wide(scale.dtype), ROWS=rows, BLOCK=triton.next_power_of_2(C), num_warps=num_warps,
        )  # fmt: skip


def backward(
    dy: Tensor, dtotal: Tensor | None, x: Tensor, weight: Tensor | None, biased: bool, mean: Tensor, scale: Tensor,
    dx: Tensor, rows: int, num_warps: int, programs: int, step: int,
) -> tuple[Tensor | None, Tensor | None]:  # fmt: skip
    """Write dx [N, C]; return the gradients of gain and bias, [C] in float32 or wider."""
    N, C = x.shape
    weight = None if weight is None else weight.contiguous()
    programs = min(programs, triton.cdiv(N, rows))
    dw = None if weight is None else torch.empty(programs, C, dtype=scale.dtype, device=x.device)
    db = torch.empty(programs, C, dtype=scale.dtype, device=x.device) if biased else None
    with torch.cuda.device_of(x):
        _backward[(programs,)](
            dy, dtotal, x, weight, mean, scale, dx, dw, db, dy.stride(0), 0 if dtotal is None else dtotal.stride(0),
            x.stride(0), N, C, WIDE=wide(scale.dtype), ROWS=rows, BLOCK=triton.next_power_of_2(C),
            num_warps=warps_of_whole_rows(step, C, num_warps),
        )  # fmt: skip
    return None if dw is None else dw.sum(0), None if db is None else db.sum(0)
