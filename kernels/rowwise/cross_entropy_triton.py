"""Cross-entropy of rows of any width: one pass for the loss, one for the gradient, without a table of probabilities.

A running maximum is kept next to the sum of exponentials: Milakov & Gimelshein 2018, "Online normalizer calculation for
softmax", https://arxiv.org/abs/1805.02867, algorithm 3. N rows, V classes.
"""

# mypy: allow-incomplete-defs
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.rowwise.rows_triton import wide


@triton.jit
def _forward(x_ptr, target_ptr, loss_ptr, lse_ptr, x_stride, V, IGNORE: tl.constexpr, SMOOTHING: tl.constexpr,
             WIDE: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    # int64: a row index times its stride overflows 32 bits on long batches
    n = tl.program_id(0).to(tl.int64)
    target = tl.load(target_ptr + n)
    top = tl.full([BLOCK], -float("inf"), WIDE)  # one maximum and one sum per lane, combined at the end
    total = tl.zeros([BLOCK], WIDE)
    plain = tl.zeros([BLOCK], WIDE)
    for start in range(0, V, BLOCK):
        c = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + n * x_stride + c, mask=c < V, other=-float("inf")).to(WIDE)
        new = tl.maximum(top, x)
        safe = tl.where(new == -float("inf"), 0.0, new)
        total = total * tl.exp(top - safe) + tl.exp(x - safe)
        top = new
        if SMOOTHING > 0:
            plain += tl.where(c < V, x, 0.0)
    most = tl.max(top, 0)
    safe = tl.where(most == -float("inf"), 0.0, most)
    log = tl.log(tl.sum(total * tl.exp(top - safe), 0))  # keeps the following numbers small if all logits are large
    inside = (target >= 0) & (target < V)  # an invalid class gives NaN instead of an illegal read
    loss = log - (tl.load(x_ptr + n * x_stride + target, mask=inside, other=float("nan")).to(WIDE) - safe)
    if SMOOTHING > 0:
        loss = (1 - SMOOTHING) * loss + SMOOTHING * (log - (tl.sum(plain, 0) / V - safe))
    tl.store(loss_ptr + n, tl.where(target == IGNORE, 0.0, loss))
    tl.store(lse_ptr + n, log + safe)


@triton.jit
def _backward(dloss_ptr, x_ptr, target_ptr, lse_ptr, dx_ptr, x_stride, V, IGNORE: tl.constexpr,
              SMOOTHING: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    n = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    target = tl.load(target_ptr + n)
    x = tl.load(x_ptr + n * x_stride + c, mask=c < V, other=-float("inf")).to(WIDE)
    dx = tl.exp(x - tl.load(lse_ptr + n)) - (c == target).to(WIDE) * (1 - SMOOTHING)
    if SMOOTHING > 0:
        dx -= tl.full([BLOCK], SMOOTHING, WIDE) / V
    dx = tl.where(target == IGNORE, 0.0, dx * tl.load(dloss_ptr + n))
    tl.store(dx_ptr + n * V + c, dx.to(dx_ptr.dtype.element_ty), mask=c < V)


def forward(
    logits: Tensor,
    targets: Tensor,
    loss: Tensor,
    lse: Tensor,
    ignore: int,
    smoothing: float,
    block: int,
    num_warps: int,
) -> None:
    """Write loss [N] and lse [N], the logarithm of the sum of exponentials; logits: [N, V], rows contiguous; targets:
    [N].
    """
    N, V = logits.shape
    with torch.cuda.device_of(logits):
        _forward[(N,)](
            logits, targets, loss, lse, logits.stride(0), V, IGNORE=ignore, SMOOTHING=smoothing, WIDE=wide(lse.dtype),
            BLOCK=block, num_warps=num_warps,
        )  # fmt: skip


def backward(
    dloss: Tensor, logits: Tensor, targets: Tensor, lse: Tensor, d_logits: Tensor, ignore: int, smoothing: float,
    block: int, num_warps: int,
) -> None:  # fmt: skip
    """Write d_logits [N, V], contiguous. It may be the same memory as logits if logits are contiguous."""
    N, V = logits.shape
    with torch.cuda.device_of(logits):
        _backward[(N, triton.cdiv(V, block))](
            dloss, logits, targets, lse, d_logits, logits.stride(0), V, IGNORE=ignore, SMOOTHING=smoothing,
            WIDE=wide(lse.dtype), BLOCK=block, num_warps=num_warps,
        )  # fmt: skip
