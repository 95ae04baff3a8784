"""A linear map to classes and its cross-entropy in one operation: the logits [N, V] are never all in memory.

The rows are processed in chunks. For each chunk the logits and their loss are computed. If gradients will be needed,
the gradients of the chunk are computed at the same time. With `in_forward` False the backward pass computes the logits
again instead: one more matrix product, but no gradient of the weights is held between the passes. The first variant
follows Hsu et al. 2024, "Liger Kernel", https://arxiv.org/abs/2410.10989, section 3.2.5. With G = softmax(x W^T + b) -
target: dx = G W, dW = G^T x, db = sum of G over rows. Gradients of the weights are summed in float32 or wider. x: [...,
C], weight: [V, C], bias: [V], targets: [...]; N rows.
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
from kernels.rowwise.cross_entropy import (
    CLASSES_BLOCKS,
    IGNORE,
    check,
    cross_entropy_reference,
    fits,
    logit_gradients,
    plain_cross_entropy,
    row_losses,
    some_targets,
)

REDUCTIONS = ("mean", "sum")
BLOCKS = (1, 4, 16, 64, 256, 1024)  # rows of a chunk whose softmax is computed at a time, in the cache of a CPU
SMALL = 2**20  # logits
CHUNKS = {"rows": (64, 128, 256, 512, 1024, 2048, 4096), "in_forward": (True, False)}


def linear_cross_entropy_reference(
    x: Tensor, weight: Tensor, targets: Tensor, bias: Tensor | None = None, ignore_index: int = IGNORE,
    label_smoothing: float = 0.0, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """The definition; arguments and result as for `linear_cross_entropy`."""
    return cross_entropy_reference(F.linear(x, weight, bias), targets, ignore_index, label_smoothing, reduction)


@operator("linear_cross_entropy")
def _forward(
    x: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, ignore: int, smoothing: float, learn: bool,
    in_forward: bool, rows: int, how: str, block: int, num_warps: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """(the sum of the losses [], lse [N], dx, dW, db); the gradients are empty unless they are computed here. x: [N,
    C].
    """
    total, lse, dx, dw, db = _results(x, weight, bias, learn and in_forward)
    settings = (ignore, smoothing, how, block, num_warps)
    for part in by_rows.parts(len(x), rows):
        logits = F.linear(x[part], weight, bias)
        loss, lse[part] = row_losses(logits, targets[part], *settings)
        total += loss.sum()
        if learn and in_forward:
            g = logit_gradients(torch.ones_like(loss), logits, targets[part], lse[part], *settings)
            _collect(g, x[part], weight, dx[part], dw, db)
    return total, lse, dx, dw, db


def _results(x: Tensor, weight: Tensor, bias: Tensor | None, gradients: bool) -> tuple[Tensor, ...]:
    wide, device = by_rows.wide(x), x.device
    dx = torch.empty_like(x, memory_format=torch.contiguous_format) if gradients else x.new_empty(0)
    dw = torch.zeros(weight.shape if gradients else (0,), dtype=wide, device=device)
    db = torch.zeros(len(weight) if gradients and bias is not None else 0, dtype=wide, device=device)
    lse = torch.empty(len(x), dtype=wide, device=device)
    return torch.zeros((), dtype=wide, device=device), lse, dx, dw, db


def _collect(g: Tensor, x: Tensor, weight: Tensor, dx: Tensor, dw: Tensor, db: Tensor) -> None:
    torch.mm(g, weight, out=dx)
    if dw.dtype == g.dtype:
        dw.addmm_(g.T, x)
    else:
        dw += g.T @ x
    if len(db):
        db += g.sum(0, dtype=db.dtype)


@_forward.register_fake
def _(
    x: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, ignore: int, smoothing: float, learn: bool,
    in_forward: bool, rows: int, how: str, block: int, num_warps: int,
) -> Any:  # fmt: skip
    return _results(x, weight, bias, learn and in_forward)


@operator("linear_cross_entropy_backward")
def _backward(
    x: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, lse: Tensor, ignore: int, smoothing: float,
    rows: int, how: str, block: int, num_warps: int,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """(dx, dW, db) of the sum of the losses; computes the logits again."""
    _, _, dx, dw, db = _results(x, weight, bias, True)
    for part in by_rows.parts(len(x), rows):
        logits = F.linear(x[part], weight, bias)
        ones = torch.ones_like(lse[part])
        g = logit_gradients(ones, logits, targets[part], lse[part], ignore, smoothing, how, block, num_warps)
        _collect(g, x[part], weight, dx[part], dw, db)
    return dx, dw, db


@_backward.register_fake
def _(x: Tensor, weight: Tensor, bias: Tensor | None, *_: Any) -> Any:
    return _results(x, weight, bias, True)[2:]


def _setup(ctx: Any, inputs: tuple, output: tuple[Tensor, ...]) -> None:
    x, weight, bias, targets, *ctx.settings = inputs
    _, lse, *gradients = output
    ctx.save_for_backward(x, weight, bias, targets, lse, *gradients)
    ctx.set_materialize_grads(False)


def _gradients(ctx: Any, d_total: Tensor, *_: Any) -> tuple:
    x, weight, bias, targets, lse, *made = ctx.saved_tensors
    ignore, smoothing, _, in_forward, *chunks = ctx.settings
    if not in_forward:
        made = _backward(x, weight, bias, targets, lse, ignore, smoothing, *chunks)
    dx, dw, db = (d_total * gradient for gradient in made)
    db = None if bias is None else db.to(bias.dtype)
    return dx.to(x.dtype), dw.to(weight.dtype), db, *[None] * 9


_forward.register_autograd(_gradients, setup_context=_setup)


def _chunked(
    x: Tensor, weight: Tensor, targets: Tensor, bias: Tensor | None, ignore: int, smoothing: float, reduction: str,
    how: str, rows: int, in_forward: bool, block: int, num_warps: int,
) -> Tensor:  # fmt: skip
    if torch.is_autocast_enabled(x.device.type):
        narrow = torch.get_autocast_dtype(x.device.type)
        x, weight, bias = x.to(narrow), weight.to(narrow), None if bias is None else bias.to(narrow)
    learn = by_rows.learns(x, weight, bias)
    x, flat = x.reshape(-1, x.shape[-1]), targets.reshape(-1)
    total, *_ = _forward(x, weight, bias, flat, ignore, smoothing, learn, in_forward, rows, how, block, num_warps)
    return total if reduction == "sum" else total / (flat != ignore).sum()


def _blocked(
    x: Tensor, weight: Tensor, targets: Tensor, bias: Tensor | None = None, ignore_index: int = IGNORE,
    label_smoothing: float = 0.0, reduction: str = "mean", *, rows: int, in_forward: bool, block: int,
) -> Tensor:  # fmt: skip
    settings = ("blocked", rows, in_forward, block, 0)
    return _chunked(x, weight, targets, bias, ignore_index, label_smoothing, reduction, *settings)


def _triton(
    x: Tensor, weight: Tensor, targets: Tensor, bias: Tensor | None = None, ignore_index: int = IGNORE,
    label_smoothing: float = 0.0, reduction: str = "mean", *, rows: int, in_forward: bool, block: int, num_warps: int,
) -> Tensor:  # fmt: skip
    settings = ("triton", rows, in_forward, block, num_warps)
    return _chunked(x, weight, targets, bias, ignore_index, label_smoothing, reduction, *settings)


def _torch(
    x: Tensor, weight: Tensor, targets: Tensor, bias: Tensor | None = None, ignore_index: int = IGNORE,
    label_smoothing: float = 0.0, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    return plain_cross_entropy(F.linear(x, weight, bias), targets, ignore_index, label_smoothing, reduction)


def linear_cross_entropy(
    x: Tensor, weight: Tensor, targets: Tensor, bias: Tensor | None = None, *, ignore_index: int = IGNORE,
    label_smoothing: float = 0.0, reduction: str = "mean", config: Choice | None = None,
) -> Tensor:  # fmt: skip
    """The mean or the sum of the losses, a scalar. x: [..., C], weight: [V, C], targets: [...] (int64), bias: [V].

    Without `config` the tuned choice runs, else chunks if the problem is large. Raises ValueError if an argument is
    invalid.
    """
    check(targets, x.shape[:-1], label_smoothing, reduction, REDUCTIONS)
    sizes = (by_rows.count(x), x.shape[-1], weight.shape[0])
    flags = (by_rows.learns(x, weight, bias), bias is not None)
    serving = tuned.implementation(OPERATION, x.device.type, x.dtype, sizes, flags, config)
    return serving(x, weight, targets, bias, ignore_index, label_smoothing, reduction)


def _inputs(problem: Problem, seed: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    N, C, V = (problem[name] for name in OPERATION.sizes)
    x, weight, bias = by_rows.numbers(problem, seed, (N, C), (V, C), (V,))
    with torch.no_grad():
        weight /= C**0.5
    return (x, weight, some_targets(problem, seed, V)), {"bias": bias} if problem["bias"] else {}


def _problems(device: str) -> dict[str, Problem]:
    large, small = [(8192, 4096, 32768), (4096, 4096, 131072)], [(512, 64, 256), (512, 256, 8192)]
    return OPERATION.named(device, {"x".join(map(str, each)): each for each in (large if device == "cuda" else small)})


def _suited(problem: Problem) -> dict[str, Any]:
    """The number of rows that gives about 2^24 logits, such as 512 rows of 32,768 classes; 64 to 4096 rows."""
    return {"rows": min(4096, max(64, 2**24 // by_rows.power(problem["classes"])))}


def _cached(problem: Problem) -> dict[str, Any]:
    return {**_suited(problem), "block": by_rows.in_cache(problem, BLOCKS, problem["classes"])}


def _default(problem: Problem) -> str:
    """Chunks, which use little memory, except for a few megabytes of logits: for 512 rows, 64 columns and 256 classes
    in float32 with gradients the whole takes 0.8 ms and chunks take 2.5 ms, on one core of an AMD EPYC.
    """
    return "torch" if problem["rows"] * problem["classes"] <= SMALL else "chunked"


OPERATION = register(
    Operation(
        name="linear_cross_entropy",
        reference=linear_cross_entropy_reference,
        implementations={
            "torch": Implementation("torch", _torch),
            "compiled": compiled(_torch),
            "chunked": Implementation(
                "chunked",
                _blocked,
                {**CHUNKS, "block": BLOCKS},
                default={"rows": 512, "in_forward": True, "block": 4},
                suited=_cached,
                files=("kernels.rowwise.cross_entropy", "kernels.rowwise.rows"),
            ),
            "triton": Implementation(
                "triton",
                _triton,
                {**CHUNKS, "block": CLASSES_BLOCKS, "num_warps": (4, 8, 16)},
                (fits,),
                default={"rows": 512, "in_forward": True, "block": 4096, "num_warps": 8},
                suited=_suited,
                refuses=by_rows.needs_gpu,
                files=("kernels.rowwise.cross_entropy", "kernels.rowwise.cross_entropy_triton", "kernels.rowwise.rows"),
            ),
        },
        inputs=_inputs,
        problems=_problems,
        default=_default,
        sizes=("rows", "columns", "classes"),
        flags=("gradients", "bias"),
    )
)
