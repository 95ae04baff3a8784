"""The problems of attention: sizes and flags, inputs to measure with, unsupported cases, and tiles that fit a GPU.

B batch, H query heads, G key and value heads, Tq queries, Tk keys, D width of one head; reach: the largest number of
keys that a query reads.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from kernels.dispatch.registry import Configuration, Problem, Value, registered
from kernels.rowwise import rows

SIZES = ("batch", "heads", "groups", "queries", "keys", "width", "reach")
FLAGS = ("causal", "window", "padded", "bias", "slopes", "dropout", "gradients")
WIDEST = 256  # a program of the Triton kernels holds whole heads in registers
HALF = ("bfloat16", "float16")

BLOCKS = {"rows": (16, 32, 64, 128, 256, 512), "sequences": (1, 4, 16, 64)}
TILES: dict[str, tuple] = {
    "block_q": (16, 32, 64, 128, 256),
    "block_k": (16, 32, 64, 128),
    "num_warps": (4, 8),
    "num_stages": (1, 2, 3, 4),
    "backward_own": (16, 32, 64, 128),
    "backward_step": (16, 32, 64, 128),
    "backward_warps": (4, 8),
    "backward_stages": (1, 2, 3),
    "precision": ("ieee", "tf32x3"),
}
BACKWARD = ("backward_own", "backward_step", "backward_warps", "backward_stages")
EVERYWHERE: dict[str, Value] = {
    "block_q": 32, "block_k": 16, "num_warps": 4, "num_stages": 1,
    "backward_own": 32, "backward_step": 16, "backward_warps": 4, "backward_stages": 1, "precision": "ieee",
}  # fmt: skip
BLOCKED = ("kernels.attention.blocked", "kernels.attention.weight_dropout")  # the files of an implementation
TILED = (
    "kernels.attention.attention_triton",
    "kernels.attention.kernels_triton",
    "kernels.attention.tiles_triton",
    *BLOCKED,
)
HOPPER = 232_448  # bytes of shared memory that a program may have there
PER_THREAD = 192  # numbers in float32, sums and scores, per thread; the rest of its 255 registers is for addresses


def suited(problem: Problem) -> Configuration:
    """Tiles by the width of a head and the bytes of a number.

    Compiled for sm_90 in bfloat16, none of these spills registers. Forward, block_q 128, block_k 64: 224 registers at
    width 128 with 8 warps, 253 at 64 with 4. Gradient of the keys, causal, 8 warps, own by step: 218 at width 64 with
    128 by 32 (128 by 64 spills 116 bytes per thread), 250 at 128 with 128 by 16 (128 by 32 spills 124), 250 at 256 with
    32 by 16.
    """
    D, half = problem["width"], problem.dtype in HALF
    if half:
        forward = (128, 64, 4, 3) if D <= 64 else (128, 64, 8, 3) if D <= 128 else (128, 64, 8, 2)
        backward = (128, 32, 8, 2) if D <= 64 else (128, 16, 8, 2) if D <= 128 else (32, 16, 8, 2)
    else:
        forward = (64, 32, 4, 2) if D <= 64 else (64, 32, 8, 2) if D <= 128 else (32, 32, 8, 2)
        backward = (64, 32, 8, 2) if D <= 128 else (32, 16, 8, 2)
    if half and D > 64 and problem["dropout"]:
        backward = (64, 16, 8, 2) if D <= 128 else backward  # with 128 by 16 the random numbers spill 116 bytes
    few = max(16, rows.power(problem["queries"]))
    names = [name for name in TILES if name != "precision"]
    return {
        **dict(zip(names, (*forward, *backward), strict=True)),
        "block_q": min(forward[0], few),
        "precision": "ieee" if half else "tf32x3",
    }


def fits(configuration: Configuration, problem: Problem) -> bool:
    """Whether tiles and sums of all programs fit shared memory and registers."""
    D = max(16, rows.power(problem["width"]))
    size = 2 if problem.dtype in HALF else 5  # of 4 bytes; splitting a product into three takes somewhat more
    tiles = (int(configuration[name]) for name in TILES if name != "precision")
    block_q, block_k, warps, stages, own, step, backward_warps, backward_stages = tiles
    held = max(block_q + 2 * stages * block_k, 2 * own + 2 * backward_stages * step)
    return (
        size * D * held <= shared_memory()
        and block_q * (D + block_k) <= rows.WARP * warps * PER_THREAD
        and own * (2 * D + step) <= rows.WARP * backward_warps * PER_THREAD
    )


def varies_what_runs(configuration: Configuration, problem: Problem) -> bool:
    """Rules out tiles of a backward pass that is not needed, and a precision setting for half precision."""
    plain = suited(problem)
    idle = () if problem["gradients"] else BACKWARD
    if problem.dtype in HALF:
        idle = (*idle, "precision")
    return all(configuration[name] in (plain[name], EVERYWHERE[name]) for name in idle)


def shared_memory() -> int:
    """Bytes of shared memory for a program on the current GPU of this machine, or on a Hopper GPU if there is none."""
    return _shared_memory(torch.cuda.current_device()) if torch.cuda.is_available() else HOPPER


@cache
def _shared_memory(index: int) -> int:
    return torch.cuda.get_device_properties(index).shared_memory_per_block_optin  # type: ignore[attr-defined]


def needs_tiles(problem: Problem) -> str | None:
    """Why the Triton kernels cannot run `problem`, or None."""
    if problem["width"] > WIDEST:
        return f"a head is at most {WIDEST} wide"
    if problem.dtype == "float64":
        return "it computes in float32"
    return rows.needs_gpu(problem)


def masked(problem: Problem) -> bool:
    """Whether torch's own attention needs a mask matrix."""
    unequal = problem["causal"] and problem["queries"] != problem["keys"]
    return unequal or problem["window"] or problem["padded"] or problem["slopes"] or problem["bias"] != "none"


def refuses_flash(problem: Problem) -> str | None:
    """Why torch's flash attention cannot run `problem`, or None."""
    if problem.device == "cpu":
        return _bias_that_learns(problem) or ("it has no dropout" if problem["dropout"] else None)
    if problem.dtype not in HALF:
        return "it computes in half precision"
    if problem["width"] > WIDEST:
        return f"a head is at most {WIDEST} wide"
    return "it takes no mask and no bias" if masked(problem) else _needs_cuda(problem)


def refuses_efficient(problem: Problem) -> str | None:
    """Why torch's memory-efficient attention cannot run `problem`, or None."""
    if problem.dtype == "float64":
        return "it computes in float32 or less"
    return "it needs as many key heads as query heads" if _grouped(problem) else _needs_cuda(problem)


def refuses_cudnn(problem: Problem) -> str | None:
    """Why cuDNN's attention cannot run `problem`, or None."""
    if problem.dtype not in HALF:
        return "it computes in half precision"
    if problem["width"] > 128 or problem["width"] % 8:
        return "a head is at most 128 wide, in steps of 8"
    return _bias_that_learns(problem) or _needs_cuda(problem)


def _bias_that_learns(problem: Problem) -> str | None:
    return "it has no gradient for a bias" if problem["bias"].startswith("learned") else None


def _grouped(problem: Problem) -> bool:
    return problem["heads"] != problem["groups"]


def _needs_cuda(problem: Problem) -> str | None:
    return None if problem.device == "cuda" else "it needs a CUDA GPU"


def lean(problem: Problem) -> str | None:
    """The definition holds all scores: if they take more than half a gigabyte, `blocked` replaces it."""
    scores = problem["batch"] * problem["heads"] * problem["queries"] * problem["keys"]
    return "blocked" if 8 * scores > 2**29 else None


def default(problem: Problem) -> str:
    """`sdpa`, but with a window `triton` if it can run, else `blocked`."""
    if not problem["window"]:
        return "sdpa"
    return "triton" if needs_tiles(problem) is None else "blocked"


def inputs(problem: Problem, seed: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Random arguments of a call for a problem: q, k, v, then keywords; see `attention` for shapes."""
    B, H, G, Tq, Tk, D, reach = (problem[name] for name in SIZES)
    generator = torch.Generator(problem.device).manual_seed(seed)
    dtype = getattr(torch, problem.dtype)

    def normal(*shape: int, learns: bool) -> torch.Tensor:
        numbers = torch.randn(shape, generator=generator, device=problem.device)
        return numbers.to(dtype).requires_grad_(learns)

    # The layout that a projection gives: the heads of a position next to each other.
    q, k, v = (
        normal(B, length, heads, D, learns=problem["gradients"]).transpose(1, 2)
        for length, heads in ((Tq, H), (Tk, G), (Tk, G))
    )
    ends = torch.randint(-(-Tk // 2), Tk + 1, (B, 1), generator=generator, device=problem.device)
    biased, table = problem["bias"], (H, Tq + Tk - 1) if problem["bias"].endswith("distance") else (H, Tq, Tk)
    before = reach - 1 if problem["causal"] else reach // 2
    return (q, k, v), {
        "causal": problem["causal"],
        "keys": torch.arange(Tk, device=problem.device) < ends if problem["padded"] else None,
        "bias": normal(*table, learns=biased.startswith("learned")) if biased != "none" else None,
        # So small that nothing is dropped and results can be compared, but the code for dropout runs.
        "dropout": 1e-12 if problem["dropout"] else 0.0,
        "scale": None,
        "window": (before, reach - 1 - before) if problem["window"] else None,
        "slopes": torch.logspace(-1, -8, H, base=2, device=problem.device) if problem["slopes"] else None,
    }


def named(operation: str) -> Callable[[str], dict[str, Problem]]:
    """Models that fit a laptop on a CPU; on a GPU heads of 64 and 128 with up to 16,384 positions."""

    def problems(device: str) -> dict[str, Problem]:
        gpu = device == "cuda"
        large = [(16, 32, 2048, 64), (8, 16, 4096, 128), (2, 16, 16384, 128)]
        shapes = large if gpu else [(8, 4, 128, 16), (4, 8, 512, 64)]
        made = {}
        for B, H, T, D in shapes:
            for causal, groups, padded, gradients in (
                (True, H, False, True), (True, H, False, False), (False, H, True, True), (True, H // 4, False, True),
            ):  # fmt: skip
                words = ["causal" if causal else "both", *["grouped"] * (groups < H), *["train"] * gradients]
                made["-".join([f"B{B}-H{H}-T{T}-D{D}", *words])] = registered(operation).problem(
                    device,
                    "bfloat16" if gpu else "float32",
                    (B, H, groups, T, T, D, T),
                    (causal, False, padded, "none", False, False, gradients),
                )
        return made

    return problems
