"""Gated activations in one pass over memory: both halves are read once, their gradients are written in place.

The backward pass keeps only the hidden layer. N rows, E columns of each half.
"""

# mypy: allow-incomplete-defs
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.rowwise.rows_triton import wide

ROOT_HALF = tl.constexpr(0.7071067811865476)
ROOT_TWO_OVER_PI = tl.constexpr(0.7978845608028654)
ROOT_OF_TWO_PI = tl.constexpr(2.5066282746310002)
CUBE = tl.constexpr(0.044715)  # for the tanh approximation of gelu
QUICK = tl.constexpr(1.702)


@triton.jit
def _sigmoid(z):
    e = tl.exp(-tl.abs(z))
    return tl.where(z >= 0, 1.0, e) / (1 + e)


@triton.jit
def _opened(z, GATE: tl.constexpr):
    """The gate's activation g and its derivative at z: (g(z), g'(z)), each with the shape of z."""
    opened, slope = z, tl.full(z.shape, 1.0, z.dtype)
    if GATE == "sigmoid":
        opened = _sigmoid(z)
        slope = opened * (1 - opened)
    elif GATE == "relu":
        opened = tl.maximum(z, 0.0)
        slope = tl.where(z > 0, 1.0, 0.0).to(z.dtype)
    elif GATE == "gelu":
        below = 0.5 * (1 + tl.erf(z * ROOT_HALF))
        opened = z * below
        slope = below + z * tl.exp(-0.5 * z * z) / ROOT_OF_TWO_PI
    elif GATE != "identity":
        # silu, and all functions of the form z sigmoid(u): gelu_tanh too, because (1 + tanh u) / 2 is the sigmoid of 2
        # u
        u, du = z, slope
        if GATE == "quick_gelu":
            u = QUICK * z
            du = QUICK * du
        elif GATE == "gelu_tanh":
            u = 2 * ROOT_TWO_OVER_PI * (z + CUBE * z * z * z)
            du = 2 * ROOT_TWO_OVER_PI * (1 + 3 * CUBE * z * z)
        s = _sigmoid(u)
        opened = z * s
        slope = s + z * s * (1 - s) * du
    return opened, slope


@triton.jit
def _forward(h_ptr, y_ptr, h_stride, E, gate_at, value_at, GATE: tl.constexpr, WIDE: tl.constexpr,
             BLOCK: tl.constexpr):  # fmt: skip
    # int64: a row index times its stride overflows 32 bits on long batches
    n = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    z = tl.load(h_ptr + n * h_stride + gate_at + c, mask=c < E, other=0.0).to(WIDE)
    v = tl.load(h_ptr + n * h_stride + value_at + c, mask=c < E, other=0.0).to(WIDE)
    opened, _ = _opened(z, GATE)
    tl.store(y_ptr + n * E + c, (opened * v).to(y_ptr.dtype.element_ty), mask=c < E)


@triton.jit
def _backward(dy_ptr, h_ptr, dh_ptr, dy_stride, h_stride, E, gate_at, value_at, GATE: tl.constexpr, WIDE: tl.constexpr,
              BLOCK: tl.constexpr):  # fmt: skip
    n = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    z = tl.load(h_ptr + n * h_stride + gate_at + c, mask=c < E, other=0.0).to(WIDE)
    v = tl.load(h_ptr + n * h_stride + value_at + c, mask=c < E, other=0.0).to(WIDE)
    g = tl.load(dy_ptr + n * dy_stride + c, mask=c < E, other=0.0).to(WIDE)
    opened, slope = _opened(z, GATE)
    at = dh_ptr + n * 2 * E + c
    tl.store(at + gate_at, (g * v * slope).to(dh_ptr.dtype.element_ty), mask=c < E)
    tl.store(at + value_at, (g * opened).to(dh_ptr.dtype.element_ty), mask=c < E)


def forward(hidden: Tensor, y: Tensor, gate: str, first: bool, block: int, num_warps: int) -> None:
    """Write y [N, E], contiguous; hidden: [N, 2E], rows contiguous."""
    N, E = y.shape
    with torch.cuda.device_of(hidden):
        _forward[(N, triton.cdiv(E, block))](
            hidden, y, hidden.stride(0), E, *_halves(E, first), GATE=gate, WIDE=wide(hidden.dtype), BLOCK=block,
            num_warps=num_warps,
        )  # fmt: skip


def backward(dy: Tensor, hidden: Tensor, d_hidden: Tensor, gate: str, first: bool, block: int, num_warps: int) -> None:
    """Write d_hidden [N, 2E], contiguous; dy: [N, E] and hidden: [N, 2E], rows contiguous."""
    N, E = dy.shape
    with torch.cuda.device_of(hidden):
        _backward[(N, triton.cdiv(E, block))](
            dy, hidden, d_hidden, dy.stride(0), hidden.stride(0), E, *_halves(E, first), GATE=gate,
            WIDE=wide(hidden.dtype), BLOCK=block, num_warps=num_warps,
        )  # fmt: skip


def _halves(E: int, first: bool) -> tuple[int, int]:
    """The columns where gate and value begin."""
    return (0, E) if first else (E, 0)
