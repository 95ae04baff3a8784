"""Root-mean-square normalisation: each row gets a mean square of one, then a gain.

Zhang & Sennrich 2019, "Root Mean Square Layer Normalization", https://arxiv.org/abs/1910.07467, eq. 4: y = x r * w, r =
1 / sqrt(mean(x^2) + eps). Statistics are in float32 or wider. With h = x r and g = dy * w the gradients are dx = r (g -
h mean(g h)) and dw = sum over rows of dy h. x: [..., C], w: [C]; N rows.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from kernels.dispatch import tuned
from kernels.dispatch.compiled import compiled
from kernels.dispatch.operators import operator
from kernels.dispatch.registry import Choice, Implementation, Operation, Problem, register
from kernels.rowwise import rows as by_rows
from kernels.rowwise import steps

EPS = 1e-6


def rms_norm_reference(x: Tensor, weight: Tensor | None = None, eps: float = EPS) -> Tensor:
    """The definition; arguments as for `rms_norm`."""
    wide = x.to(by_rows.wide(x))
    y = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (y if weight is None else y * weight.to(wide.dtype)).to(x.dtype)


@operator("rms_norm")
def _forward(
    x: Tensor, weight: Tensor | None, eps: float, how: str, rows: int, num_warps: int, programs: int, step: int = 0
) -> tuple[Tensor, Tensor]:
    """(y, r); r: [N]."""
    x2, y = by_rows.flat(x), torch.empty_like(x, memory_format=torch.contiguous_format)
    scale = torch.empty(len(x2), dtype=by_rows.wide(x), device=x.device)
    if x.numel():
        if how == "triton":
            from kernels.rowwise import rms_norm_triton

            rms_norm_triton.forward(x2, weight, by_rows.flat(y), scale, eps, rows, num_warps, step)
        else:
            _blocked_forward(x2, weight, by_rows.flat(y), scale, eps, rows)
    return y, scale


@_forward.register_fake
def _(x: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    return y, torch.empty(by_rows.count(x), dtype=by_rows.wide(x), device=x.device)


@operator("rms_norm_backward")
def _backward(
    dy: Tensor, x: Tensor, weight: Tensor | None, scale: Tensor, how: str, rows: int, num_warps: int, programs: int,
    step: int = 0,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """(dx, dw); dw is empty if there is no gain."""
    dy2, x2, dx = by_rows.flat(dy), by_rows.flat(x), torch.empty_like(x, memory_format=torch.contiguous_format)
    dw = None if weight is None else torch.zeros(weight.shape, dtype=scale.dtype, device=x.device)
    if x.numel():
        if how == "triton":
            from kernels.rowwise import rms_norm_triton

            dw = rms_norm_triton.backward(dy2, x2, weight, scale, by_rows.flat(dx), rows, num_warps, programs, step)
        else:
            _blocked_backward(dy2, x2, weight, scale, by_rows.flat(dx), dw, rows)
    return dx, x.new_empty(0) if weight is None or dw is None else dw.to(weight.dtype)


@_backward.register_fake
def _(dy: Tensor, x: Tensor, weight: Tensor | None, *_: Any) -> tuple[Tensor, Tensor]:
    dx = torch.empty_like(x, memory_format=torch.contiguous_format)
    return dx, x.new_empty(0) if weight is None else torch.empty_like(weight)


def _setup(ctx: Any, inputs: tuple, output: tuple[Tensor, Tensor]) -> None:
    x, weight, _, *ctx.settings = inputs
    ctx.save_for_backward(x, weight, output[1])
    ctx.set_materialize_grads(False)


def _gradients(ctx: Any, dy: Tensor, _: Tensor | None) -> tuple:
    x, weight, scale = ctx.saved_tensors
    dx, dw = _backward(dy, x, weight, scale, *ctx.settings)
    return dx, None if weight is None else dw, None, None, None, None, None, None


_forward.register_autograd(_gradients, setup_context=_setup)
# PyTorch does the same for its own operator
_forward.register_autocast("cuda", torch.float32)


def _blocked_forward(x: Tensor, weight: Tensor | None, y: Tensor, scale: Tensor, eps: float, rows: int) -> None:
    for part in by_rows.parts(len(x), rows):
        wide = x[part].to(scale.dtype)
        mean = torch.linalg.vector_norm(wide, dim=1).square_().div_(x.shape[1])
        r = torch.rsqrt(mean.add_(eps), out=scale[part])[:, None]
        if weight is None:
            y[part] = wide * r
        else:
            y[part] = (wide * r).mul_(weight)


def _blocked_backward(
    dy: Tensor, x: Tensor, weight: Tensor | None, scale: Tensor, dx: Tensor, dw: Tensor | None, rows: int
) -> None:
    for part in by_rows.parts(len(x), rows):
        r = scale[part, None]
        h, g = x[part] * r, dy[part].to(scale.dtype)
        product = h * g
        if weight is not None and dw is not None:
            dw += product.sum(0)
            product *= weight
            g = g * weight
        dx[part] = torch.addcmul(g, h, product.mean(1, keepdim=True), value=-1).mul_(r)


def _torch(x: Tensor, weight: Tensor | None = None, eps: float = EPS) -> Tensor:
    return F.rms_norm(x, x.shape[-1:], weight, eps)


def _blocked(x: Tensor, weight: Tensor | None = None, eps: float = EPS, *, rows: int) -> Tensor:
    return _forward(x, weight, eps, "blocked", rows, 0, 0)[0]


def _triton(
    x: Tensor, weight: Tensor | None = None, eps: float = EPS, *, rows: int, num_warps: int, programs: int, step: int
) -> Tensor:
    return _forward(x, weight, eps, "triton", rows, num_warps, programs, step)[0]


def rms_norm(x: Tensor, weight: Tensor | None = None, eps: float = EPS, *, config: Choice | None = None) -> Tensor:
    """x: [..., C], weight: [C] -> [..., C] in the dtype of x. Without `config` the tuned choice runs."""
    if config is None and tuned.untouched(OPERATION, x.device):
        return _torch(x, weight, eps)
    sizes, flags = (by_rows.count(x), x.shape[-1]), (by_rows.learns(x, weight),)
    return tuned.implementation(OPERATION, x.device.type, x.dtype, sizes, flags, config)(x, weight, eps)


def _inputs(problem: Problem, seed: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    C = problem["columns"]
    return tuple(by_rows.numbers(problem, seed, (problem["rows"], C), (C,))), {}


OPERATION = register(
    Operation(
        name="rms_norm",
        reference=rms_norm_reference,
        implementations={
            "torch": Implementation("torch", _torch),
            "compiled": compiled(_torch),
            "blocked": Implementation("blocked", _blocked, by_rows.BLOCKS, default={"rows": 64}, suited=by_rows.cached),
            "triton": Implementation(
                "triton",
                _triton,
                {**steps.TILES, "programs": (128, 256, 512, 1024)},
                (steps.fits,),
                default={"rows": 1, "num_warps": 8, "step": 0, "programs": 512},
                suited=steps.suited,
                refuses=steps.needs_gpu_and_a_backward_pass_that_fits,
                files=("kernels.rowwise.rms_norm_triton", "kernels.rowwise.rows_triton", "kernels.rowwise.rows"),
            ),
        },
        inputs=_inputs,
        problems=by_rows.shapes("rms_norm"),
        default=by_rows.own,
        sizes=("rows", "columns"),
        flags=("gradients",),
    )
)
