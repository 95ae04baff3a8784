"""Layer normalisation: each row gets mean zero and variance one, then a gain and a bias; optionally after an addition.

Ba et al. 2016, "Layer Normalization", https://arxiv.org/abs/1607.06450, eq. 4: y = (x - m) r * w + b, r = 1 / sqrt(var
+ eps), where the variance is divided by C. Statistics are in float32 or wider. With h = (x - m) r and g = dy * w the
gradients are dx = r (g - mean(g) - h mean(g h)), dw = sum over rows of dy h, db = sum over rows of dy. `add_layer_norm`
first adds a residual, as between the sublayers of a Transformer, and also returns the sum. The sum is rounded to the
dtype of x before the norm reads it. x, residual: [..., C], w and b: [C]; N rows.
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

EPS = 1e-5


def layer_norm_reference(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = EPS,
    residual: Tensor | None = None,
) -> Any:
    """The definition: y [..., C], or (y, x + residual) if there is a residual; arguments as for `add_layer_norm`."""
    total = x if residual is None else x + residual
    wide = total.to(by_rows.wide(x))
    centred = wide - wide.mean(-1, keepdim=True)
    y = centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + eps)
    y = y if weight is None else y * weight.to(wide.dtype)
    y = (y if bias is None else y + bias.to(wide.dtype)).to(x.dtype)
    return y if residual is None else (y, total)


@operator("layer_norm")
def _forward(
    x: Tensor, residual: Tensor | None, weight: Tensor | None, bias: Tensor | None, eps: float,
    how: str, rows: int, num_warps: int, programs: int, step: int = 0,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """(y, total, m, r). y: the shape of x. total: that of x, or empty without a residual. m, r: [N]."""
    y, total, mean, scale = _results(x, residual)
    x2, added = by_rows.flat(x), None if residual is None else by_rows.flat(residual)
    if x.numel() and how == "triton":
        from kernels.rowwise import layer_norm_triton

        sums = None if residual is None else by_rows.flat(total)
        layer_norm_triton.forward(
            x2, added, weight, bias, by_rows.flat(y), sums, mean, scale, eps, rows, num_warps, step
        )
    elif x.numel():
        for part in by_rows.parts(len(x2), rows):
            if added is not None:
                torch.add(x2[part], added[part], out=by_rows.flat(total)[part])
            read = x2 if added is None else by_rows.flat(total)
            wide = read[part].to(scale.dtype)
            normed, m, r = torch.native_layer_norm(wide, wide.shape[1:], _as(weight, wide), _as(bias, wide), eps)
            by_rows.flat(y)[part], mean[part], scale[part] = normed, m[:, 0], r[:, 0]
    return y, total, mean, scale


def _results(x: Tensor, residual: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    total = x.new_empty(0) if residual is None else torch.empty_like(y)
    mean = torch.empty(by_rows.count(x), dtype=by_rows.wide(x), device=x.device)
    return y, total, mean, torch.empty_like(mean)


def _as(parameter: Tensor | None, x: Tensor) -> Tensor | None:
    return None if parameter is None else parameter.to(x.dtype)


@_forward.register_fake
def _(x: Tensor, residual: Tensor | None, *_: Any) -> Any:
    return _results(x, residual)


@operator("layer_norm_backward")
def _backward(
    dy: Tensor, dtotal: Tensor | None, x: Tensor, weight: Tensor | None, biased: bool, mean: Tensor, scale: Tensor,
    how: str, rows: int, num_warps: int, programs: int, step: int = 0,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """(dx, dw, db). x is the tensor that was normalised. The gradient of a missing parameter is empty."""
    dx = torch.empty_like(x, memory_format=torch.contiguous_format)
    dw = torch.zeros(x.shape[-1] if weight is not None else 0, dtype=scale.dtype, device=x.device)
    db = torch.zeros(x.shape[-1] if biased else 0, dtype=scale.dtype, device=x.device)
    dy2, x2, more = by_rows.flat(dy), by_rows.flat(x), None if dtotal is None else by_rows.flat(dtotal)
    if x.numel() and how == "triton":
        from kernels.rowwise import layer_norm_triton

        found = layer_norm_triton.backward(
            dy2, more, x2, weight, biased, mean, scale, by_rows.flat(dx), rows, num_warps, programs, step
        )
        dw, db = (old if new is None else new for old, new in zip((dw, db), found))
    elif x.numel():
        for part in by_rows.parts(len(x2), rows):
            read, g, m, r = x2[part].to(scale.dtype), dy2[part].to(scale.dtype), mean[part, None], scale[part, None]
            wanted = [True, weight is not None, biased]
            gain = torch.ones_like(db) if weight is None and biased else _as(weight, read)
            parts = torch.ops.aten.native_layer_norm_backward(g, read, read.shape[1:], m, r, gain, gain, wanted)
            by_rows.flat(dx)[part] = parts[0] if more is None else parts[0] + more[part]
            for whole, found in ((dw, parts[1]), (db, parts[2])):
                if found is not None:
                    whole += found
    return dx, dw.to(x.dtype if weight is None else weight.dtype), db.to(x.dtype if weight is None else weight.dtype)


@_backward.register_fake
def _(dy: Tensor, dtotal: Tensor | None, x: Tensor, weight: Tensor | None, biased: bool, *_: Any) -> Any:
    dtype = x.dtype if weight is None else weight.dtype
    dw = torch.empty(0 if weight is None else x.shape[-1], dtype=dtype, device=x.device)
    db = torch.empty(x.shape[-1] if biased else 0, dtype=dtype, device=x.device)
    return torch.empty_like(x, memory_format=torch.contiguous_format), dw, db


def _setup(ctx: Any, inputs: tuple, output: tuple[Tensor, Tensor, Tensor, Tensor]) -> None:
    x, residual, weight, bias, _, *ctx.settings = inputs
    _, total, mean, scale = output
    ctx.biased, ctx.added = bias is not None, residual is not None
    ctx.save_for_backward(total if ctx.added else x, weight, mean, scale)
    ctx.set_materialize_grads(False)


def _gradients(ctx: Any, dy: Tensor | None, dtotal: Tensor | None, *_: Any) -> tuple:
    x, weight, mean, scale = ctx.saved_tensors
    dy = torch.zeros_like(x) if dy is None else dy
    dx, dw, db = _backward(dy, dtotal if ctx.added else None, x, weight, ctx.biased, mean, scale, *ctx.settings)
    added, dw, db = dx if ctx.added else None, None if weight is None else dw, db if ctx.biased else None
    return dx, added, dw, db, None, None, None, None, None, None


_forward.register_autograd(_gradients, setup_context=_setup)
# PyTorch does the same for its own operator
_forward.register_autocast("cuda", torch.float32)


def _torch(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = EPS,
    residual: Tensor | None = None,
) -> Any:
    if residual is None:
        return F.layer_norm(x, x.shape[-1:], weight, bias, eps)
    total = x + residual
    return F.layer_norm(total, x.shape[-1:], weight, bias, eps), total


def _fused(
    how: str, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, residual: Tensor | None,
    rows: int, num_warps: int = 0, programs: int = 0, step: int = 0,
) -> Any:  # fmt: skip
    y, total, *_ = _forward(x, residual, weight, bias, eps, how, rows, num_warps, programs, step)
    return y if residual is None else (y, total)


def _blocked(
    x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = EPS,
    residual: Tensor | None = None, **tiles: Any,
) -> Any:  # fmt: skip
    return _fused("blocked", x, weight, bias, eps, residual, **tiles)


def _triton(
    x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = EPS,
    residual: Tensor | None = None, **tiles: Any,
) -> Any:  # fmt: skip
    return _fused("triton", x, weight, bias, eps, residual, **tiles)


def _serving(x: Tensor, gradients: bool, residual: bool, config: Choice | None) -> Any:
    sizes = (by_rows.count(x), x.shape[-1])
    return tuned.implementation(OPERATION, x.device.type, x.dtype, sizes, (gradients, residual), config)


def layer_norm(
    x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = EPS,
    *, config: Choice | None = None,
) -> Tensor:  # fmt: skip
    """x: [..., C], weight and bias: [C] -> [..., C]. Without `config` the tuned choice for this problem runs."""
    if config is None and tuned.untouched(OPERATION, x.device):
        return F.layer_norm(x, x.shape[-1:], weight, bias, eps)
    return _serving(x, by_rows.learns(x, weight, bias), False, config)(x, weight, bias, eps)


def add_layer_norm(
    x: Tensor, residual: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = EPS,
    *, config: Choice | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """(the norm of x + residual, x + residual), both [..., C]; x and residual: [..., C], weight and bias: [C].

    Raises ValueError if x and residual differ in shape or dtype.
    """
    if residual.shape != x.shape or residual.dtype != x.dtype:
        raise ValueError(
            f"x and residual must have the same shape and dtype, but got {list(x.shape)} of {x.dtype} and "
            f"{list(residual.shape)} of {residual.dtype}: expand and cast them first."
        )
    return _serving(x, by_rows.learns(x, residual, weight, bias), True, config)(x, weight, bias, eps, residual)


def _inputs(problem: Problem, seed: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    N, C = problem["rows"], problem["columns"]
    x, weight, bias, residual = by_rows.numbers(problem, seed, (N, C), (C,), (C,), (N, C))
    return (x, weight, bias), {"residual": residual} if problem["residual"] else {}


def _problems(device: str) -> dict[str, Problem]:
    added = by_rows.shapes("layer_norm", residual=True)(device)
    return {**by_rows.shapes("layer_norm", residual=False)(device), **{f"{name}-add": p for name, p in added.items()}}


OPERATION = register(
    Operation(
        name="layer_norm",
        reference=layer_norm_reference,
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
                files=("kernels.rowwise.layer_norm_triton", "kernels.rowwise.rows_triton", "kernels.rowwise.rows"),
            ),
        },
        inputs=_inputs,
        problems=_problems,
        default=by_rows.own,
        sizes=("rows", "columns"),
        flags=("gradients", "residual"),
    )
)
