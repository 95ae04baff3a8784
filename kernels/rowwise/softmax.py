"""Softmax of rows: y_i = exp(x_i) / sum_j exp(x_j), computed from x - max x so that nothing overflows.

The gradient is dx = y (dy - sum_j y_j dy_j), which needs only y. Computed in float32 or wider. x: [..., C]; N rows.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from kernels.dispatch import tuned
from kernels.dispatch.compiled import compiled
from kernels.dispatch.operators import operator
from kernels.dispatch.registry import Choice, Implementation, Operation, Problem, register
from kernels.rowwise import rows as by_rows
from kernels.rowwise import steps


def softmax_reference(x: Tensor) -> Tensor:
    """The definition: x: [..., C] -> [..., C]."""
    wide = x.to(by_rows.wide(x))
    powers = (wide - wide.amax(-1, keepdim=True)).exp()
    return (powers / powers.sum(-1, keepdim=True)).to(x.dtype)


@operator("softmax")
def _forward(x: Tensor, how: str, rows: int, num_warps: int, step: int = 0) -> Tensor:
    x2, y = by_rows.flat(x), torch.empty_like(x, memory_format=torch.contiguous_format)
    y2 = by_rows.flat(y)
    if x.numel() and how == "triton":
        from kernels.rowwise import softmax_triton

        softmax_triton.forward(x2, y2, rows, num_warps, step)
    elif x.numel():
        for part in by_rows.parts(len(x2), rows):
            wide = x2[part].to(by_rows.wide(x))
            powers = (wide - wide.amax(1, keepdim=True)).exp_()
            torch.div(powers, powers.sum(1, keepdim=True), out=powers)
            y2[part] = powers
    return y


@_forward.register_fake
def _(x: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@operator("softmax_backward")
def _backward(dy: Tensor, y: Tensor, how: str, rows: int, num_warps: int, step: int = 0) -> Tensor:
    dx = torch.empty_like(y, memory_format=torch.contiguous_format)
    dy2, y2, dx2 = by_rows.flat(dy), by_rows.flat(y.contiguous()), by_rows.flat(dx)
    if y.numel() and how == "triton":
        from kernels.rowwise import softmax_triton

        softmax_triton.backward(dy2, y2, dx2, rows, num_warps, step)
    elif y.numel():
        for part in by_rows.parts(len(y2), rows):
            wide = y2[part].to(by_rows.wide(y))
            product = wide * dy2[part]
            dx2[part] = product.addcmul_(wide, product.sum(1, keepdim=True), value=-1)
    return dx


@_backward.register_fake
def _(dy: Tensor, y: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(y, memory_format=torch.contiguous_format)


def _setup(ctx: Any, inputs: tuple, output: Tensor) -> None:
    _, *ctx.settings = inputs
    ctx.save_for_backward(output)


def _gradients(ctx: Any, dy: Tensor) -> tuple:
    return _backward(dy, *ctx.saved_tensors, *ctx.settings), None, None, None, None


_forward.register_autograd(_gradients, setup_context=_setup)
_forward.register_autocast("cuda", torch.float32)  # PyTorch does the same for its own operator


def _torch(x: Tensor) -> Tensor:
    return x.softmax(-1)


def _blocked(x: Tensor, *, rows: int) -> Tensor:
    return _forward(x, "blocked", rows, 0)


def _triton(x: Tensor, *, rows: int, num_warps: int, step: int) -> Tensor:
    return _forward(x, "triton", rows, num_warps, step)


def softmax(x: Tensor, *, config: Choice | None = None) -> Tensor:
    """x: [..., C] -> [..., C], over the last axis. Without `config` the tuned choice for this problem runs."""
    sizes = (by_rows.count(x), x.shape[-1])
    return tuned.implementation(OPERATION, x.device.type, x.dtype, sizes, (by_rows.learns(x),), config)(x)


def _inputs(problem: Problem, seed: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return tuple(by_rows.numbers(problem, seed, (problem["rows"], problem["columns"]))), {}


OPERATION = register(
    Operation(
        name="softmax",
        reference=softmax_reference,
        implementations={
            "torch": Implementation("torch", _torch),
            "compiled": compiled(_torch),
            "blocked": Implementation("blocked", _blocked, by_rows.BLOCKS, default={"rows": 64}, suited=by_rows.cached),
            "triton": Implementation(
                "triton",
                _triton,
                steps.TILES,
                (steps.fits,),
                default={"rows": 1, "num_warps": 8, "step": 0},
                suited=steps.suited_to_softmax,
                refuses=by_rows.needs_gpu,
                files=("kernels.rowwise.softmax_triton", "kernels.rowwise.rows_triton", "kernels.rowwise.rows"),
            ),
        },
        inputs=_inputs,
        problems=by_rows.shapes("softmax"),
        default=by_rows.own,
        sizes=("rows", "columns"),
        flags=("gradients",),
    )
)
