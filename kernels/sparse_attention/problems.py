"""The problems of block-sparse attention: sizes and flags, inputs to measure with, unsupported cases, tiles.

B batch, H query heads, G key and value heads, Tq queries, Tk keys, D width of one head, N query blocks of R queries, M
key blocks of S keys, n key blocks that a query block reads, K = n * S.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from kernels.attention import problems as asked
from kernels.dispatch.registry import Configuration, Problem, registered
from kernels.rowwise import rows

SIZES = ("batch", "heads", "groups", "queries", "keys", "width", "rows", "columns", "listed")
# lists: "shared" by all heads, or "own" for each head. allowed: "none", or a mask of a block's "keys" or of its
# "pairs".
FLAGS = ("lists", "allowed", "padded", "bias", "dropout", "gradients")
LONGEST = 4096  # the largest number of keys for which a matrix of all pairs is made

TOGETHER = {"together": (1, 4, 16, 64, 256)}


def sizes(q: Tensor, k: Tensor, blocks: Tensor, R: int, S: int) -> tuple[int, ...]:
    """The sizes of a call, in the order of SIZES; arguments as for `block_sparse_attention`."""
    (B, H, Tq, D), (G, Tk) = q.shape, k.shape[1:3]
    return B, H, G, Tq, Tk, D, R, S, blocks.shape[3]


def flags(
    q: Tensor, k: Tensor, v: Tensor, blocks: Tensor, allowed: Tensor | None, keys: Tensor | None, bias: Tensor | None,
    drops: bool,
) -> tuple[Any, ...]:  # fmt: skip
    """The flags of a call, in the order of FLAGS; arguments as for `block_sparse_attention`."""
    lists = "own" if blocks.shape[1] > 1 else "shared"
    masked = "none" if allowed is None else "pairs" if allowed.shape[3] > 1 else "keys"
    biased = "none" if bias is None else "learned" if rows.learns(bias) else "fixed"
    return lists, masked, keys is not None, biased, drops, rows.learns(q, k, v)


def suited(problem: Problem) -> Configuration:
    """The tiles of attention, none larger than a block or the keys that it reads."""
    tiles = {**asked.suited(problem)}
    read = problem["listed"] * problem["columns"]
    for name, most in (
        ("block_q", problem["rows"]),
        ("block_k", read),
        ("backward_own", max(problem["rows"], problem["columns"])),
        ("backward_step", read),
    ):
        tiles[name] = min(int(tiles[name]), max(16, rows.power(most)))
    return tiles


def varies_what_runs(configuration: Configuration, problem: Problem) -> bool:
    """Rules out tiles of a backward pass that is not needed, and a precision setting for half precision."""
    idle = () if problem["gradients"] else asked.BACKWARD
    if problem.dtype in asked.HALF:
        idle = (*idle, "precision")
    plain = suited(problem)
    return all(configuration[name] in (plain[name], asked.EVERYWHERE[name]) for name in idle)


def drops(problem: Problem) -> str | None:
    """Why an implementation without dropout cannot run `problem`, or None."""
    return "it has no dropout" if problem["dropout"] else None


def needs_tiles(problem: Problem) -> str | None:
    """Why the Triton kernels cannot run `problem`, or None."""
    return drops(problem) or asked.needs_tiles(problem)


def refuses_dense(problem: Problem) -> str | None:
    """Why a matrix of all pairs cannot be made for `problem`, or None."""
    if max(problem["queries"], problem["keys"]) > LONGEST:
        return f"it makes a matrix of all pairs, for at most {LONGEST} positions"
    return None


def inputs(problem: Problem, seed: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Random arguments of a call for a problem: q, k, v, blocks, then keywords; see `block_sparse_attention`."""
    B, H, G, Tq, Tk, D, R, S, n = (problem[name] for name in SIZES)
    N, M, device = -(-Tq // R), -(-Tk // S), problem.device
    generator = torch.Generator(device).manual_seed(seed)

    def normal(*shape: int, learns: bool) -> Tensor:
        numbers = torch.randn(shape, generator=generator, device=device)
        return numbers.to(getattr(torch, problem.dtype)).requires_grad_(learns)

    # The layout that a projection gives: the heads of a position next to each other.
    q, k, v = (
        normal(B, length, heads, D, learns=problem["gradients"]).transpose(1, 2)
        for length, heads in ((Tq, H), (Tk, G), (Tk, G))
    )
    lists = H if problem["lists"] == "own" else 1
    ranked = torch.rand(1, lists, N, M, generator=generator, device=device).argsort(3)
    places = torch.arange(n, device=device)
    allowed = None
    if problem["allowed"] != "none":
        shape = (1, 1, N, R if problem["allowed"] == "pairs" else 1, n * S)
        # A list that is longer than the number of blocks starts again; a repeated block is allowed once.
        once = (places < M).repeat_interleave(S)
        allowed = (torch.rand(shape, generator=generator, device=device) < 0.75) & once
    ends = torch.randint(-(-Tk // 2), Tk + 1, (B, 1), generator=generator, device=device)
    return (q, k, v, ranked[..., places % max(M, 1)]), {
        "rows": R,
        "columns": S,
        "allowed": allowed,
        "keys": torch.arange(Tk, device=device) < ends if problem["padded"] else None,
        "bias": normal(1, H, N, R, n * S, learns=problem["bias"] == "learned") if problem["bias"] != "none" else None,
        # So small that nothing is dropped and results can be compared, but the code for dropout runs.
        "dropout": 1e-12 if problem["dropout"] else 0.0,
    }


def problems(device: str) -> dict[str, Problem]:
    """Lists of BigBird, one per head, and the fixed lists of a Sparse Transformer."""
    gpu, named = device == "cuda", registered("block_sparse_attention").named
    bigbird = [(8, 16, 4096, 64, 64), (2, 16, 16384, 128, 64)] if gpu else [(4, 4, 256, 16, 8), (4, 4, 1024, 32, 16)]
    fixed = [(4, 16, 8192, 64, 128, 32)] if gpu else [(4, 4, 512, 16, 64, 8)]
    own = {f"bigbird-B{B}-H{H}-T{T}-D{D}-b{b}": (B, H, H, T, T, D, b, b, 8) for B, H, T, D, b in bigbird}
    shared = {
        f"fixed-B{B}-H{H}-T{T}-D{D}-l{long}-c{c}": (B, H, H, T, T, D, long, c, long // c + T // long - 1)
        for B, H, T, D, long, c in fixed
    }
    return {
        **named(device, own, lists="own", allowed="keys", bias="none"),
        **named(device, shared, lists="shared", allowed="pairs", bias="none"),
    }
