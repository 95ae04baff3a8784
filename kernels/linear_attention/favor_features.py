"""Random features that approximate a kernel: products of features of queries and keys approximate softmax weights.

x: [..., T, D] and W: [M, D], or [..., H, T, D] and [H, M, D] with a matrix per head; x' = scale * x. Two kinds:
  "positive" (Choromanski et al. 2021, "Rethinking Attention with Performers", https://arxiv.org/abs/2009.14794,
  section 2.3, FAVOR+): exp(e - max e) with the exponents e = W x' - |x'|^2 / 2; F = M features.
  "periodic" (Peng et al. 2021, "Random Feature Attention", https://arxiv.org/abs/2103.02143, eq. 4):
  M^-1/2 [sin W x', cos W x']; F = 2 M.
The maximum of each row is returned too. It is a constant for gradients; who sums over rows must add their maxima again.
The maxima of "periodic" are zeros. "positive" omits the factor M^-1/2, which cancels in attention.

With g = dy * y the gradient of "positive" is dx = scale (g W - (sum g) x'). "periodic" has g = dy_sin y_cos - dy_cos
y_sin and no second term. Both need features and inputs, but no new exponentials. W is drawn, not learned. Computed in
float32 or wider, and so are the features: rounding errors of exponents would be magnified. N rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from kernels.attention.problems import shared_memory
from kernels.dispatch import tuned
from kernels.dispatch.compiled import compiled
from kernels.dispatch.operators import flops_of, operator
from kernels.dispatch.precision import without_autocast
from kernels.dispatch.registry import Choice, Configuration, Implementation, Operation, Problem, register
from kernels.rowwise import rows as by_rows

KINDS = ("positive", "periodic")
SIZES = ("rows", "matrices", "width", "features")  # rows of all heads; M vectors of a matrix
FLAGS = ("kind", "gradients")
WIDEST = 1024  # the number of random vectors whose products with a row a program holds
BLOCKS = {"rows": (256, 512, 1024, 2048, 4096)}
TILES: dict[str, tuple] = {
    "rows": (16, 32, 64, 128),
    "step": (16, 32, 64),  # a step along the inner axis of a product: the width forward, the vectors backward
    "num_warps": (2, 4, 8, 16),
    "precision": ("ieee", "tf32x3"),
}


def favor_features_reference(
    x: Tensor, W: Tensor, *, scale: float = 1.0, kind: str = "positive"
) -> tuple[Tensor, Tensor]:
    """The definition; arguments and results as for `favor_features`."""
    wide = by_rows.wide(x)
    x = x.to(wide) * scale
    products = x @ W.to(wide).transpose(-1, -2)
    if kind == "periodic":
        features = torch.cat([products.sin(), products.cos()], dim=-1) / math.sqrt(W.shape[-2])
        return features, torch.zeros_like(features[..., :1]).detach()
    exponents = products - x.square().sum(-1, keepdim=True) / 2
    maxima = exponents.detach().amax(-1, keepdim=True)
    return (exponents - maxima).exp(), maxima


def favor_features(
    x: Tensor, W: Tensor, *, scale: float = 1.0, kind: str = "positive", config: Choice | None = None
) -> tuple[Tensor, Tensor]:
    """x: [..., T, D], W: [M, D] -> features [..., T, F] and the maximum of each row's exponents, [..., T, 1].

    x: [..., H, T, D] if W is [H, M, D]. Both results are in float32 or wider. scale: factor of x. kind: "positive" (F =
    M) or "periodic" (F = 2 M). Without `config` the tuned choice for this problem runs. Raises ValueError if kind is
    unknown, W needs a gradient, or the shapes do not fit.
    """
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, but got {kind!r}.")
    if W.requires_grad:
        raise ValueError("Random matrices are constants, but this one needs a gradient: detach it.")
    if W.shape[-1] != x.shape[-1] or (W.dim() == 3 and (x.dim() < 3 or x.shape[-3] != len(W))):
        raise ValueError(
            f"W must be [M, D], or [H, M, D] for x of [..., H, T, D], but got {list(W.shape)} for {list(x.shape)}."
        )
    matrices = len(W) if W.dim() == 3 else 1
    sizes, flags = (by_rows.count(x), matrices, x.shape[-1], W.shape[-2]), (kind, by_rows.learns(x))
    call = tuned.implementation(OPERATION, x.device.type, x.dtype, sizes, flags, config)
    with without_autocast(x.device.type):
        return call(x, W, scale=scale, kind=kind)


def _torch(x: Tensor, W: Tensor, *, scale: float, kind: str) -> tuple[Tensor, Tensor]:
    """In place if autograd allows it: the features are the largest tensors of their users."""
    x = x.to(by_rows.wide(x))
    x = x if scale == 1 else x * scale
    W = W.to(x.dtype)
    products = _products(x, W)
    if kind == "periodic":
        features = torch.cat([products.sin(), products.cos()], dim=-1)
        return features * W.shape[-2] ** -0.5, x.new_zeros(*x.shape[:-1], 1)
    exponents = products.sub_(x.square().sum(-1, keepdim=True) / 2)
    maxima = exponents.detach().amax(-1, keepdim=True)
    return exponents.sub_(maxima).exp_(), maxima


@operator("favor_features")
def _forward(
    x: Tensor, W: Tensor, scale: float, kind: str, how: str, rows: int, step: int, num_warps: int, precision: str
) -> tuple[Tensor, Tensor]:
    y, maxima = _empty(x, W, kind)
    tensors = _heads(x), W, _heads(y), _heads(maxima)
    if y.numel() and how == "triton":
        from kernels.linear_attention import favor_features_triton

        favor_features_triton.forward(*tensors, scale, kind, rows, step, num_warps, precision)
    elif y.numel():
        _blocked_forward(*tensors, scale, kind, rows)
    return y, maxima


@_forward.register_fake
def _(x: Tensor, W: Tensor, scale: float, kind: str, *_: Any) -> tuple[Tensor, Tensor]:
    return _empty(x, W, kind)


@operator("favor_features_backward")
def _backward(
    dy: Tensor, x: Tensor, W: Tensor, y: Tensor, scale: float, kind: str, how: str, rows: int, step: int,
    num_warps: int, precision: str,
) -> Tensor:  # fmt: skip
    dx = torch.empty_like(x, memory_format=torch.contiguous_format)
    tensors = _heads(dy), _heads(x), W, _heads(y), _heads(dx)
    if dx.numel() and how == "triton":
        from kernels.linear_attention import favor_features_triton

        favor_features_triton.backward(*tensors, scale, kind, rows, step, num_warps, precision)
    elif dx.numel():
        _blocked_backward(*tensors, scale, kind, rows)
    return dx


@_backward.register_fake
def _(dy: Tensor, x: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _setup(ctx: Any, inputs: tuple, output: tuple[Tensor, Tensor]) -> None:
    x, W, *ctx.settings = inputs
    ctx.save_for_backward(x, W, output[0])
    ctx.mark_non_differentiable(output[1])


def _gradients(ctx: Any, dy: Tensor, _: Tensor) -> tuple:
    return _backward(dy, *ctx.saved_tensors, *ctx.settings), *[None] * 8


_forward.register_autograd(_gradients, setup_context=_setup)


@flops_of(_forward)
def _flops(x: tuple, W: tuple, *_: Any, **__: Any) -> int:
    return 2 * math.prod(x) * W[-2]


@flops_of(_backward)
def _backward_flops(_dy: tuple, x: tuple, W: tuple, *_: Any, **__: Any) -> int:
    return _flops(x, W)


def _empty(x: Tensor, W: Tensor, kind: str) -> tuple[Tensor, Tensor]:
    """Memory for features and maxima."""
    features = W.shape[-2] * (1 if kind == "positive" else 2)
    rows, wide = x.shape[:-1], by_rows.wide(x)
    return x.new_empty(*rows, features, dtype=wide), x.new_empty(*rows, 1, dtype=wide)


def _heads(x: Tensor) -> Tensor:
    """[..., H, T, X] -> [B, H, T, X]; missing axes get size one."""
    return x.reshape(-1, *x.shape[-3:]) if x.dim() > 4 else x[(None,) * (4 - x.dim())]


def _products(x: Tensor, W: Tensor) -> Tensor:
    """x: [..., T, D] -> [..., T, M]; each head has its own matrix if there are several."""
    if W.dim() == 2 or len(W) == 1:
        return F.linear(x, W.view(W.shape[-2:]))
    return torch.einsum("...htd,hmd->...htm", x, W)


def _parts(x: Tensor, rows: int) -> Iterator[tuple[slice, ...]]:
    """Slices of about `rows` rows over all heads at once."""
    B, H, T = x.shape[:3]
    return ((slice(None), slice(None), part) for part in by_rows.parts(T, max(1, rows // (B * H))))


def _blocked_forward(x: Tensor, W: Tensor, y: Tensor, maxima: Tensor, scale: float, kind: str, rows: int) -> None:
    W, M = W.to(y.dtype), W.shape[-2]
    for part in _parts(x, rows):
        near = x[part].to(y.dtype) * scale
        products = _products(near, W)
        if kind == "periodic":
            torch.sin(products, out=y[part][..., :M])
            torch.cos(products, out=y[part][..., M:])
            y[part] *= M**-0.5
            maxima[part] = 0
        else:
            products -= near.square().sum(-1, keepdim=True) / 2
            torch.amax(products, -1, keepdim=True, out=maxima[part])
            torch.exp(products.sub_(maxima[part]), out=y[part])


def _blocked_backward(
    dy: Tensor, x: Tensor, W: Tensor, y: Tensor, dx: Tensor, scale: float, kind: str, rows: int
) -> None:
    W, M = W.to(y.dtype), W.shape[-2]
    for part in _parts(x, rows):
        g, features = dy[part], y[part]
        if kind == "periodic":
            g = (g[..., :M] * features[..., M:]).addcmul_(g[..., M:], features[..., :M], value=-1)
        else:
            g = g * features
        back = _products(g, W.transpose(-1, -2))
        if kind == "positive":
            back.addcmul_(g.sum(-1, keepdim=True), x[part].to(y.dtype), value=-scale)
        dx[part] = back.mul_(scale)


def _blocked(x: Tensor, W: Tensor, *, scale: float, kind: str, rows: int) -> tuple[Tensor, Tensor]:
    return _forward(x, W, scale, kind, "blocked", rows, 0, 0, "")


def _triton(
    x: Tensor, W: Tensor, *, scale: float, kind: str, rows: int, step: int, num_warps: int, precision: str
) -> tuple[Tensor, Tensor]:
    return _forward(x, W, scale, kind, "triton", rows, step, num_warps, precision)


def _fits(configuration: Configuration, problem: Problem) -> bool:
    """Whether the rows of a program fit its registers, and the factors of its products its shared memory."""
    rows, step, warps = (int(configuration[name]) for name in ("rows", "step", "num_warps"))
    held = max(16, by_rows.power(max(problem["features"], problem["width"])))
    # Numbers of 4 bytes, 5 if one is split into parts; two stages of what a loop loads.
    return rows * held <= by_rows.PER_THREAD * by_rows.WARP * warps and 5 * 2 * (rows + held) * step <= shared_memory()


def _suited(problem: Problem) -> Configuration:
    """32 numbers of a row block per thread, and up to 64 rows, because each program reads the whole matrix.

    Compiled for sm_90 with M = 256, D = 64: 190 registers forward, 79 backward with 32 rows and 8 warps, no spills;
    with 64 rows and 16 warps, of 128 registers each, 632 bytes per thread spill.
    """
    held = max(16, by_rows.power(max(problem["features"], problem["width"])))
    rows = min(64, max(16, 8192 // held))
    warps = min(TILES["num_warps"][-1], max(2, rows * held // 1024))
    return {"rows": rows, "step": 16, "num_warps": warps, "precision": "tf32x3"}


def _needs_gpu(problem: Problem) -> str | None:
    if max(problem["features"], problem["width"]) > WIDEST:
        return f"a program holds at most {WIDEST} products of a row"
    return "it computes in float32" if problem.dtype == "float64" else by_rows.needs_gpu(problem)


def _inputs(problem: Problem, seed: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    N, H, D, M = (problem[name] for name in SIZES)
    shape = ((1, H, N // H, D), (H, M, D)) if H > 1 else ((N, D), (M, D))
    x, W = by_rows.numbers(problem, seed, *shape)
    return (x, W.detach().to(by_rows.wide(W))), {"scale": D**-0.25, "kind": problem["kind"]}


def _problems(device: str) -> dict[str, Problem]:
    shapes = [(2**18, 64, 256), (2**17, 128, 256)] if device == "cuda" else [(2048, 16, 64), (8192, 64, 256)]
    found: dict[str, Problem] = {}
    for kind, H in (("positive", 1), ("periodic", 4)):
        found |= OPERATION.named(device, {f"{kind}-{N}x{D}-M{M}": (N, H, D, M) for N, D, M in shapes}, kind=kind)
    return found


OPERATION = register(
    Operation(
        name="favor_features",
        reference=favor_features_reference,
        implementations={
            "torch": Implementation("torch", _torch),
            "compiled": compiled(_torch),
            "blocked": Implementation("blocked", _blocked, BLOCKS, default={"rows": 1024}),
            "triton": Implementation(
                "triton",
                _triton,
                TILES,
                (_fits,),
                default={"rows": 16, "step": 16, "num_warps": 8, "precision": "ieee"},
                suited=_suited,
                refuses=_needs_gpu,
                files=(
                    "kernels.linear_attention.favor_features_triton",
                    "kernels.attention.tiles_triton",
                    "kernels.rowwise.rows",
                ),
            ),
        },
        inputs=_inputs,
        problems=_problems,
        default=by_rows.own,
        sizes=SIZES,
        flags=FLAGS,
    )
)
