"""Rotary positions: pairs of channels are rotated by angles that grow with the position.

Su et al. 2021, "RoFormer", https://arxiv.org/abs/2104.09864, eq. 34: at position p, pair m of a head of width D is
rotated by p * base^(-2m/D): (a, b) -> (a cos - b sin, a sin + b cos). Pairs are (2m, 2m + 1), "interleaved", as in the
paper, or (m, m + D/2), "halves", as in Llama and GPT-NeoX. The gradient is rotated back by the same angle. Angles,
cosines and products are in float32 or wider. x: [B, H, T, D], positions: [T].
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from kernels.dispatch import tuned
from kernels.dispatch.compiled import compiled
from kernels.dispatch.operators import operator
from kernels.dispatch.registry import Choice, Configuration, Implementation, Operation, Problem, register
from kernels.rowwise import rows as by_rows

BASE = 10000.0
POSITIONS = (16, 32, 64, 128, 256, 512, 1024, 4096)  # of a block on a CPU
LAYOUTS = ("halves", "interleaved")


def angles(x: Tensor, positions: Tensor, base: float) -> Tensor:
    """The angles [T, D/2] in radians, for x: [B, H, T, D] and positions: [T]."""
    D, wide = x.shape[3], by_rows.wide(x)
    frequencies = base ** (-torch.arange(0, D, 2, device=x.device, dtype=wide) / D)
    return positions.to(wide)[:, None] * frequencies


def rotary_reference(x: Tensor, positions: Tensor, base: float = BASE, layout: str = "halves") -> Tensor:
    """The definition; arguments as for `rotary`."""
    D, turns = x.shape[3], angles(x, positions, base)
    m = torch.arange(D // 2, device=x.device)
    first, second = (m, m + D // 2) if layout == "halves" else (2 * m, 2 * m + 1)
    a, b = (x.to(by_rows.wide(x))[..., places] for places in (first, second))
    back = torch.cat([first, second]).argsort()
    turned = torch.cat([a * turns.cos() - b * turns.sin(), a * turns.sin() + b * turns.cos()], dim=3)
    return turned[..., back].to(x.dtype)


def _pairs(x: Tensor, interleaved: bool) -> tuple[Tensor, Tensor]:
    """Views of the first and the second number of each pair, [B, H, T, D/2]; x: [B, H, T, D]."""
    if interleaved:
        return x[..., 0::2], x[..., 1::2]
    first, second = x.chunk(2, dim=3)
    return first, second


@operator("rotary")
def _rotate(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool, how: str, rows: int, num_warps: int) -> Tensor:
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    if x.numel() and how == "triton":
        from kernels.rowwise import rotary_triton

        dense = x if x.stride(3) == 1 else x.contiguous()
        rotary_triton.rotate(dense, cos, sin, y, interleaved, rows, num_warps)
    elif x.numel():
        for part in by_rows.parts(x.shape[2], rows):
            a, b = _pairs(x[:, :, part].to(cos.dtype), interleaved)
            first, second = _pairs(y[:, :, part], interleaved)
            first.copy_((a * cos[part]).addcmul_(b, sin[part], value=-1))
            second.copy_((a * sin[part]).addcmul_(b, cos[part]))
    return y


@_rotate.register_fake
def _(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool, how: str, rows: int, num_warps: int) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _setup(ctx: Any, inputs: tuple, output: Tensor) -> None:
    _, cos, sin, *ctx.settings = inputs
    ctx.save_for_backward(cos, sin)


def _gradients(ctx: Any, dy: Tensor) -> tuple:
    cos, sin = ctx.saved_tensors
    return _rotate(dy, cos, -sin, *ctx.settings), None, None, None, None, None, None


_rotate.register_autograd(_gradients, setup_context=_setup)


def _torch(x: Tensor, positions: Tensor, base: float = BASE, layout: str = "halves") -> Tensor:
    turns, wide = angles(x, positions, base), by_rows.wide(x)
    cos, sin = turns.cos(), turns.sin()
    if layout == "halves":
        first, second = x.to(wide).chunk(2, dim=3)
        turned = torch.cat([first * cos - second * sin, first * sin + second * cos], dim=3)
    else:
        first, second = x.to(wide).unflatten(3, (x.shape[3] // 2, 2)).unbind(4)
        turned = torch.stack([first * cos - second * sin, first * sin + second * cos], dim=4).flatten(3)
    return turned.to(x.dtype)


def _blocked(x: Tensor, positions: Tensor, base: float = BASE, layout: str = "halves", *, rows: int) -> Tensor:
    turns = angles(x, positions, base)
    return _rotate(x, turns.cos(), turns.sin(), layout == "interleaved", "blocked", rows, 0)


def _triton(
    x: Tensor, positions: Tensor, base: float = BASE, layout: str = "halves", *, rows: int, num_warps: int
) -> Tensor:
    turns = angles(x, positions, base)
    return _rotate(x, turns.cos(), turns.sin(), layout == "interleaved", "triton", rows, num_warps)


def rotary(
    x: Tensor, positions: Tensor, base: float = BASE, layout: str = "halves", *, config: Choice | None = None
) -> Tensor:
    """x: [B, H, T, D], positions: [T] -> x rotated, [B, H, T, D]. Without `config` the tuned choice runs.

    Raises ValueError if D is odd or the layout is unknown.
    """
    B, H, T, D = x.shape
    if D % 2:
        raise ValueError(f"Rotary positions rotate pairs, so a head's width must be even, but it is {D}.")
    if layout not in LAYOUTS:
        raise ValueError(f"layout must be one of {', '.join(LAYOUTS)}, but got {layout!r}.")
    if config is None and tuned.untouched(OPERATION, x.device):
        return _torch(x, positions, base, layout)
    flags = (by_rows.learns(x), layout)
    serving = tuned.implementation(OPERATION, x.device.type, x.dtype, (B, H, T, D), flags, config)
    return serving(x, positions, base, layout)


def _inputs(problem: Problem, seed: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    B, H, T, D = (problem[name] for name in OPERATION.sizes)
    (x,) = by_rows.numbers(problem, seed, (B, T, H, D))  # the layout that a projection gives
    heads = x.detach().transpose(1, 2).requires_grad_(problem["gradients"])
    return (heads, torch.arange(T, device=problem.device)), {"layout": problem["layout"]}


def _problems(device: str) -> dict[str, Problem]:
    large, small = [(8, 32, 2048, 128), (1, 32, 16384, 128)], [(8, 4, 128, 32), (2, 8, 512, 64), (1, 8, 2048, 64)]
    shapes = {"x".join(map(str, each)): each for each in (large if device == "cuda" else small)}
    return OPERATION.named(device, shapes, layout="halves")


def _fits(configuration: Configuration, problem: Problem) -> bool:
    """Each thread has at least one pair and at most 32."""
    threads = by_rows.WARP * int(configuration["num_warps"])
    return threads <= int(configuration["rows"]) * by_rows.power(problem["width"] // 2) <= 32 * threads


def _suited(problem: Problem) -> dict[str, Any]:
    """1,024 pairs per program of 4 warps; other widths get warps with 1 to 32 pairs for each thread."""
    rows = min(64, max(2, 1024 // by_rows.power(problem["width"] // 2)))
    pairs = rows * by_rows.power(problem["width"] // 2)
    return {"rows": rows, "num_warps": max(pairs // 1024, min(4, pairs // by_rows.WARP))}


def _cached(problem: Problem) -> dict[str, Any]:
    width = problem["batch"] * problem["heads"] * problem["width"]
    return {"rows": by_rows.in_cache(problem, POSITIONS, width)}


OPERATION = register(
    Operation(
        name="rotary",
        reference=rotary_reference,
        implementations={
            "torch": Implementation("torch", _torch),
            "compiled": compiled(_torch),
            "blocked": Implementation("blocked", _blocked, {"rows": POSITIONS}, default={"rows": 128}, suited=_cached),
            "triton": Implementation(
                "triton",
                _triton,
                {"rows": (2, 4, 8, 16, 32, 64), "num_warps": (1, 2, 4, 8)},
                (_fits,),
                default={"rows": 16, "num_warps": 4},
                suited=_suited,
                refuses=by_rows.needs_gpu,
                files=("kernels.rowwise.rotary_triton", "kernels.rowwise.rows"),
            ),
        },
        inputs=_inputs,
        problems=_problems,
        default=by_rows.own,
        sizes=("batch", "heads", "length", "width"),
        flags=("gradients", "layout"),
    )
)
