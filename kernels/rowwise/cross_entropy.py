"""Cross-entropy of a softmax: log sum exp(x) - x_target for each row, without a table of probabilities.

With label smoothing e (Szegedy et al. 2016, https://arxiv.org/abs/1512.00567, section 7) the target distribution is 1 -
e at the true class plus e / V at each class: (1 - e) (lse - x_target) + e (lse - mean x). The backward pass computes
the gradient exp(x - lse) - target again from the logits, so the forward pass keeps one number per row. A row whose
target is `ignore_index` does not count. Losses are in float32 or wider. logits: [..., V], targets: [...]; N rows, V
classes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from kernels.dispatch import tuned
from kernels.dispatch.compiled import compiled
from kernels.dispatch.operators import operator
from kernels.dispatch.registry import Choice, Configuration, Implementation, Operation, Problem, register
from kernels.rowwise import rows as by_rows

IGNORE = -100
REDUCTIONS = ("none", "mean", "sum")
ROWS_BLOCKS = (1, 2, 4, *by_rows.BLOCKS["rows"])
CLASSES_BLOCKS = (1024, 2048, 4096, 8192, 16384)


def cross_entropy_reference(
    logits: Tensor, targets: Tensor, ignore_index: int = IGNORE, label_smoothing: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """The definition; arguments and result as for `cross_entropy`."""
    logs = logits.to(by_rows.wide(logits)).log_softmax(-1)
    kept = targets != ignore_index
    true = logs.gather(-1, torch.where(kept, targets, 0)[..., None])[..., 0]
    loss = -(1 - label_smoothing) * true - label_smoothing * logs.mean(-1)
    return reduced(torch.where(kept, loss, 0), kept, reduction)


def reduced(loss: Tensor, kept: Tensor, reduction: str) -> Tensor:
    """Reduce the losses of rows. loss: [...], 0 where a row does not count; kept: [...], True where it counts.

    reduction: "none" -> loss as it is, "sum" -> their sum, "mean" -> their mean over the rows that count, both [].
    """
    if reduction == "none":
        return loss
    return loss.sum() if reduction == "sum" else loss.sum() / kept.sum()


@operator("cross_entropy")
def _forward(
    logits: Tensor, targets: Tensor, ignore: int, smoothing: float, how: str, block: int, num_warps: int
) -> tuple[Tensor, Tensor]:
    """(loss [N], log sum exp [N]) of logits [N, V] and targets [N]."""
    x, targets = by_rows.flat(logits), targets.contiguous()
    loss = torch.empty(len(x), dtype=by_rows.wide(x), device=x.device)
    lse = torch.empty_like(loss)
    if len(x) and how == "triton":
        from kernels.rowwise import cross_entropy_triton

        cross_entropy_triton.forward(x, targets, loss, lse, ignore, smoothing, block, num_warps)
    elif len(x):
        for part in by_rows.parts(len(x), block):
            wide, target = x[part].to(loss.dtype), targets[part]
            top, ignored = wide.amax(1, keepdim=True), target == ignore
            shifted = wide - top  # keeps the following numbers small if all logits are large
            read = shifted.gather(1, target.masked_fill(ignored, 0)[:, None])[:, 0]
            if smoothing:
                read = (1 - smoothing) * read + smoothing * shifted.mean(1)
            logs = shifted.exp_().sum(1).log_()
            torch.add(logs, top[:, 0], out=lse[part])
            torch.sub(logs, read, out=loss[part]).masked_fill_(ignored, 0)
    return loss, lse


@_forward.register_fake
def _(logits: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    loss = torch.empty(logits.shape[0], dtype=by_rows.wide(logits), device=logits.device)
    return loss, torch.empty_like(loss)


@operator("cross_entropy_backward")
def _backward(
    dloss: Tensor, logits: Tensor, targets: Tensor, lse: Tensor, ignore: int, smoothing: float,
    how: str, block: int, num_warps: int,
) -> Tensor:  # fmt: skip
    x, targets, dx = (
        by_rows.flat(logits),
        targets.contiguous(),
        torch.empty_like(logits, memory_format=torch.contiguous_format),
    )
    if x.numel() and how == "triton":
        from kernels.rowwise import cross_entropy_triton

        cross_entropy_triton.backward(dloss.contiguous(), x, targets, lse, dx, ignore, smoothing, block, num_warps)
    elif x.numel():
        for part in by_rows.parts(len(x), block):
            target, ignored = targets[part, None], (targets[part] == ignore)[:, None]
            g = x[part].to(lse.dtype).sub(lse[part, None]).exp_()
            true = torch.full_like(target, 0, dtype=lse.dtype).sub_(1 - smoothing)
            g.scatter_add_(1, target.masked_fill(ignored, 0), true)
            if smoothing:
                g.sub_(smoothing / x.shape[1])
            dx[part] = g.mul_(dloss[part, None]).masked_fill_(ignored, 0)
    return dx


@_backward.register_fake
def _(dloss: Tensor, logits: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(logits, memory_format=torch.contiguous_format)


def _setup(ctx: Any, inputs: tuple, output: tuple[Tensor, Tensor]) -> None:
    logits, targets, *ctx.settings = inputs
    ctx.save_for_backward(logits, targets, output[1])
    ctx.set_materialize_grads(False)


def _gradients(ctx: Any, dloss: Tensor, _: Tensor | None) -> tuple:
    logits, targets, lse = ctx.saved_tensors
    return _backward(dloss, logits, targets, lse, *ctx.settings), None, None, None, None, None, None


_forward.register_autograd(_gradients, setup_context=_setup)
# PyTorch does the same for its own operator
_forward.register_autocast("cuda", torch.float32)


def row_losses(
    logits: Tensor, targets: Tensor, ignore: int, smoothing: float, how: str, block: int, num_warps: int
) -> tuple[Tensor, Tensor]:
    """(loss [N], log sum exp [N]) of logits [N, V] and targets [N].

    how: "blocked", where `block` is a number of rows, or "triton", where it is a number of classes.
    """
    return _forward(logits, targets, ignore, smoothing, how, block, num_warps)


def logit_gradients(dloss: Tensor, logits: Tensor, targets: Tensor, lse: Tensor, *settings: Any) -> Tensor:
    """The gradient [N, V] of `row_losses` for the gradients dloss [N] of its losses; same settings."""
    return _backward(dloss, logits, targets, lse, *settings)


def plain_cross_entropy(
    logits: Tensor, targets: Tensor, ignore_index: int = IGNORE, label_smoothing: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """PyTorch's own cross-entropy; arguments and result as for `cross_entropy`."""
    V, wide = logits.shape[-1], by_rows.wide(logits)
    loss = F.cross_entropy(
        logits.reshape(-1, V).to(wide), targets.reshape(-1), ignore_index=ignore_index,
        label_smoothing=label_smoothing, reduction=reduction,
    )  # fmt: skip
    return loss.view(targets.shape) if reduction == "none" else loss


def _rowwise(
    how: str, logits: Tensor, targets: Tensor, ignore: int, smoothing: float, reduction: str, block: int, num_warps: int
) -> Tensor:
    loss, _ = _forward(by_rows.flat(logits), targets.reshape(-1), ignore, smoothing, how, block, num_warps)
    return reduced(loss.view(targets.shape), targets != ignore, reduction)


def _blocked(
    logits: Tensor, targets: Tensor, ignore_index: int = IGNORE, label_smoothing: float = 0.0, reduction: str = "mean",
    *, rows: int,
) -> Tensor:  # fmt: skip
    return _rowwise("blocked", logits, targets, ignore_index, label_smoothing, reduction, rows, 0)


def _triton(
    logits: Tensor, targets: Tensor, ignore_index: int = IGNORE, label_smoothing: float = 0.0, reduction: str = "mean",
    *, block: int, num_warps: int,
) -> Tensor:  # fmt: skip
    return _rowwise("triton", logits, targets, ignore_index, label_smoothing, reduction, block, num_warps)


def check(targets: Tensor, shape: torch.Size, label_smoothing: float, reduction: str, reductions: tuple) -> None:
    """Raises ValueError if an argument of a cross-entropy is invalid. shape: of the rows, which `targets` must have."""
    if targets.shape != shape:
        raise ValueError(f"There must be a target for every row, {list(shape)}, but got {list(targets.shape)}.")
    if targets.dtype != torch.int64:
        raise ValueError(f"targets must be class numbers in int64, but got {targets.dtype}: cast them with .long().")
    if not 0 <= label_smoothing <= 1:
        raise ValueError(f"label_smoothing must be between 0 and 1, but got {label_smoothing}.")
    if reduction not in reductions:
        raise ValueError(f"reduction must be one of {', '.join(reductions)}, but got {reduction!r}.")


def cross_entropy(
    logits: Tensor, targets: Tensor, *, ignore_index: int = IGNORE, label_smoothing: float = 0.0,
    reduction: str = "mean", config: Choice | None = None,
) -> Tensor:  # fmt: skip
    """The cross-entropy of logits [..., V] and targets [...] (int64): a scalar, or [...] with reduction "none".

    Without `config` the tuned choice for this problem runs. Raises ValueError if an argument is invalid.
    """
    check(targets, logits.shape[:-1], label_smoothing, reduction, REDUCTIONS)
    sizes = (by_rows.count(logits), logits.shape[-1])
    flags = (by_rows.learns(logits),)
    serving = tuned.implementation(OPERATION, logits.device.type, logits.dtype, sizes, flags, config)
    return serving(logits, targets, ignore_index, label_smoothing, reduction)


def some_targets(problem: Problem, seed: int, classes: int) -> Tensor:
    """[N] random class numbers; a tenth of them are ignored."""
    generator = torch.Generator(problem.device).manual_seed(seed + 1)
    targets = torch.randint(classes, (problem["rows"],), generator=generator, device=problem.device)
    ignored = torch.rand(problem["rows"], generator=generator, device=problem.device) < 0.1
    return targets.masked_fill(ignored, IGNORE)


def _inputs(problem: Problem, seed: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    (logits,) = by_rows.numbers(problem, seed, (problem["rows"], problem["columns"]))
    return (logits, some_targets(problem, seed, problem["columns"])), {}


def _problems(device: str) -> dict[str, Problem]:
    large, small = [(8192, 32768), (4096, 131072)], [(512, 256), (512, 8192), (256, 32768)]
    return OPERATION.named(device, {f"{N}x{C}": (N, C) for N, C in (large if device == "cuda" else small)})


def fits(configuration: Configuration, problem: Problem) -> bool:
    """Between 4 and 32 classes per thread at a time."""
    threads = by_rows.WARP * int(configuration["num_warps"])
    return 4 * threads <= int(configuration["block"]) <= 32 * threads


def _cached(problem: Problem) -> dict[str, Any]:
    return {"rows": by_rows.in_cache(problem, ROWS_BLOCKS, problem["columns"])}


OPERATION = register(
    Operation(
        name="cross_entropy",
        reference=cross_entropy_reference,
        implementations={
            "torch": Implementation("torch", plain_cross_entropy),
            "compiled": compiled(plain_cross_entropy),
            "blocked": Implementation("blocked", _blocked, {"rows": ROWS_BLOCKS}, default={"rows": 8}, suited=_cached),
            "triton": Implementation(
                "triton",
                _triton,
                {"block": CLASSES_BLOCKS, "num_warps": (2, 4, 8, 16, 32)},
                (fits,),
                default={"block": 4096, "num_warps": 8},
                refuses=by_rows.needs_gpu,
                files=("kernels.rowwise.cross_entropy_triton", "kernels.rowwise.rows"),
            ),
        },
        inputs=_inputs,
        problems=_problems,
        default=by_rows.own,
        sizes=("rows", "columns"),
        flags=("gradients",),
    )
)
