"""Causal linear attention by Triton kernels as a torch operator: plain, normalised or decayed.

out_i = q_i S_i, with a normaliser divided by q_i z_i + eps; S_i = g_i S_{i-1} + k_i^T v_i. The gradient of log g needs
no extra pass: out depends on l, the running sum of log g, as exp(l_i - l_j), and the gradient of l_i is q_i dq_i - k_i
dk_i. B batch, H heads, T time, F features, D width of a value, E = D, or D + 1 with a normaliser.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from kernels.attention.problems import HALF, shared_memory
from kernels.dispatch.operators import operator
from kernels.dispatch.registry import Configuration, Implementation, Problem, Value, registered
from kernels.rowwise import rows

SIZES = ("batch", "heads", "positions", "features", "width")
TILES: dict[str, tuple] = {
    "chunk": (16, 32, 64, 128),
    "block_f": (16, 32, 64, 128),
    "block_d": (16, 32, 64, 128),
    "num_warps": (2, 4, 8),
    "num_stages": (1, 2, 3),
    "precision": ("ieee", "tf32x3"),
}
EVERYWHERE: dict[str, Value] = {
    "chunk": 16, "block_f": 16, "block_d": 16, "num_warps": 4, "num_stages": 1, "precision": "ieee",
}  # fmt: skip
FILES = (
    "kernels.linear_attention.chunked",
    "kernels.linear_attention.linear_attention_triton",
    "kernels.attention.tiles_triton",
)


def chunked_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    decay: Tensor | None = None,
    state: Tensor | None = None,
    normalised: bool = False,
    eps: float = 0.0,
    precision: str,
    **tiles: int,
) -> tuple[Tensor, Tensor]:
    """q and k: [B, H, T, F], v: [B, H, T, D] -> out [B, H, T, D] and the state after T, [B, H, F, E].

    decay: [B, H, T], log g. state: [B, H, F, E], from before. normalised: whether out is divided by q_i z_i + eps.
    precision and tiles: a configuration with the names of TILES.
    """
    device = q.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else v.dtype
    settings = [tiles[name] for name in TILES if name != "precision"]
    heads = (x.to(dtype) for x in (q, k, v))
    out, _, state = _chunked(*heads, decay, state, normalised, eps, precision, settings)
    return out, state


@operator("chunked_linear_attention")
def _chunked(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    decay: Tensor | None,
    state: Tensor | None,
    normalised: bool,
    eps: float,
    precision: str,
    tiles: list[int],
) -> tuple[Tensor, Tensor, Tensor]:
    """(out, normalisers [B, H, T] or empty, the state after T)."""
    from kernels.linear_attention.linear_attention_triton import Launch

    if not v.numel():
        out, norm, last = _shapes(q, v, normalised)
        return out, norm, last.zero_() if state is None else last.copy_(state)
    return Launch(q, k, v, decay, normalised, precision, tiles).forward(state, eps)


def _shapes(q: Tensor, v: Tensor, normalised: bool) -> tuple[Tensor, Tensor, Tensor]:
    out = torch.empty_like(v if v.stride(3) == 1 else v.contiguous())
    B, H, T, features = q.shape
    norm = v.new_empty((B, H, T) if normalised else (0,), dtype=torch.float32)
    return out, norm, v.new_empty(B, H, features, v.shape[3] + normalised, dtype=torch.float32)


@_chunked.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, decay: Any, state: Any, normalised: bool, *_: Any) -> tuple[Tensor, ...]:
    return _shapes(q, v, normalised)


@operator("chunked_linear_attention_backward")
def _backward(
    d_out: Tensor,
    d_norm: Tensor | None,
    d_last: Tensor | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    decay: Tensor | None,
    state: Tensor | None,
    normalised: bool,
    precision: str,
    tiles: list[int],
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of q, k, v and the first state; also the state after T."""
    from kernels.linear_attention.linear_attention_triton import Launch

    if not v.numel():
        d_q, d_k, d_v, d_first, last = _backward_shapes(q, k, v, normalised)
        return d_q.zero_(), d_k.zero_(), d_v, d_first.zero_() if d_last is None else d_first.copy_(d_last), last.zero_()
    return Launch(q, k, v, decay, normalised, precision, tiles).backward(d_out, d_norm, state, d_last)


def _backward_shapes(q: Tensor, k: Tensor, v: Tensor, normalised: bool) -> tuple:
    last = _shapes(q, v, normalised)[2]
    return *(x.new_empty(x.shape) for x in (q, k, v)), last, torch.empty_like(last)


@_backward.register_fake
def _(
    d_out: Any, d_norm: Any, d_last: Any, q: Tensor, k: Tensor, v: Tensor, decay: Any, state: Any, normalised: bool,
    *_: Any,
) -> tuple:  # fmt: skip
    return _backward_shapes(q, k, v, normalised)


def _keep(ctx: Any, inputs: tuple, output: tuple[Tensor, Tensor, Tensor]) -> None:
    q, k, v, decay, state, ctx.normalised, _, ctx.precision, ctx.tiles = inputs
    out, norm, _ = output
    ctx.save_for_backward(q, k, v, decay, state, out, norm)
    ctx.mark_non_differentiable(norm)
    ctx.set_materialize_grads(False)


def _gradients(ctx: Any, d_out: Tensor | None, _d_norm: Tensor | None, d_last: Tensor | None) -> tuple:
    q, k, v, decay, state, out, norm = ctx.saved_tensors
    d_out = torch.zeros_like(out) if d_out is None else d_out
    d_norm = None
    if ctx.normalised:  # out is a quotient: through its numerator, then through its denominator
        d_out = (d_out / norm[..., None]).to(v.dtype)
        # Use d_out after rounding: both paths nearly cancel, and so do the errors that they share.
        d_norm = -(d_out.float() * out).sum(3)
    settings = ctx.normalised, ctx.precision, ctx.tiles
    d_q, d_k, d_v, d_first, last = _backward(d_out, d_norm, d_last, q, k, v, decay, state, *settings)
    d_decay = None
    if decay is not None and ctx.needs_input_grad[3]:
        d_level = (q.float() * d_q).sum(3) - (k.float() * d_k).sum(3)
        d_decay = d_level.flip(2).cumsum(2).flip(2)
        if d_last is not None:
            d_decay = d_decay + (d_last * last).sum((2, 3))[..., None]
        d_decay = d_decay.to(decay.dtype)
    d_state = d_first.to(state.dtype) if state is not None and ctx.needs_input_grad[4] else None
    return d_q, d_k, d_v, d_decay, d_state, None, None, None, None


_chunked.register_autograd(_gradients, setup_context=_keep)


def fits(configuration: Configuration, problem: Problem) -> bool:
    """Whether the tiles for the gradients of a chunk fit shared memory and registers."""
    chunk, block_f, block_d, warps, stages = (int(configuration[name]) for name in TILES if name != "precision")
    half = problem.dtype in HALF
    size = 2 if half else 5  # of 4 bytes; splitting a product into three takes somewhat more
    # Queries, keys, values, their gradients and two states in flight; plus the scores and their gradients.
    held = stages * (2 * chunk * (block_f + block_d) + 2 * block_f * block_d) + 2 * chunk * chunk
    sums = 2 * chunk * (chunk + block_f)
    return (
        size * held <= shared_memory()
        and max(sums, block_f * block_d) <= rows.WARP * warps * 192
        and (not half or configuration["precision"] == "ieee")
    )


def suited(problem: Problem) -> Configuration:
    """Chunks of 64, where the state and the chunk cost the same for heads of 64.

    Compiled for sm_90 in bfloat16, the gradients spill 832 bytes per thread with 4 warps, none with 8.
    """
    if problem.dtype in HALF:
        return {"chunk": 64, "block_f": 64, "block_d": 64, "num_warps": 8, "num_stages": 2}
    return {"chunk": 32, "block_f": 32, "block_d": 32, "num_warps": 8, "num_stages": 2, "precision": "tf32x3"}


def needs_tiles(problem: Problem) -> str | None:
    """Why the Triton kernels cannot run `problem`, or None."""
    return "it computes in float32" if problem.dtype == "float64" else rows.needs_gpu(problem)


def tiled(call: Callable[..., Any], refuses: Callable[[Problem], str | None] = needs_tiles) -> Implementation:
    """The implementation with these kernels; `call` takes the tiles as keywords."""
    return Implementation(
        "triton", call, TILES, (fits,), default=EVERYWHERE, suited=suited, refuses=refuses, files=FILES
    )


def lean(problem: Problem) -> str | None:
    """The definition holds a state per position: beyond a quarter of a gigabyte of them `chunks` replaces it."""
    held = 8 * problem["batch"] * problem["heads"] * problem["positions"] * problem["features"] * problem["width"]
    return "chunks" if held > 2**28 else None


def named(operation: str, **flags: Value) -> Callable[[str], dict[str, Problem]]:
    """Shapes of retention on a GPU and of a laptop on a CPU; flags: those that are not False."""

    def problems(device: str) -> dict[str, Problem]:
        large = [(8, 32, 4096, 128, 128), (8, 32, 16384, 128, 128), (16, 16, 2048, 64, 64)]
        shapes = large if device == "cuda" else [(8, 4, 256, 32, 32), (2, 4, 2048, 64, 64)]
        named = {f"B{B}-H{H}-T{T}-F{F}-D{D}": (B, H, T, F, D) for B, H, T, F, D in shapes}
        return registered(operation).named(device, named, **flags)

    return problems
