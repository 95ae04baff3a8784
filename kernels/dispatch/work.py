"""Lower bounds of what implementations compute and move, for a configuration of a problem: the input of a roofline.

A multiplication and an addition count as two FLOPs. Bytes count what no cache can save: inputs and outputs once, and
intermediate tensors that an implementation writes out completely. Both are lower bounds: masks are assumed to save as
much as possible. B batch, H query heads, G key and value heads, Tq queries, Tk keys, D width of one head, C positions
in a chunk.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from kernels.dispatch.registry import Configuration, Problem

Work = Callable[[Configuration, Problem], tuple[float, float]]

SIZES = {"float64": 8, "float32": 4}  # bytes of a number; all others have two
# FLOPs of a training step relative to forward: five products in the backward pass, two in the forward pass
TRAINED = 3.5


def attention(configuration: Configuration, problem: Problem) -> tuple[float, float]:
    """(FLOPs, bytes) of attention that skips masked scores and stores no scores; tiles compute whole blocks."""
    Tq, Tk = (math.ceil(problem[name] / tile) * tile for name, tile in _tiles(configuration, problem))
    pairs = Tq * min(Tk, problem["reach"]) / (2 if problem["causal"] else 1)
    return _attention(problem, pairs, 0)


def whole_scores(configuration: Configuration, problem: Problem) -> tuple[float, float]:
    """(FLOPs, bytes) of attention that computes all scores, writes them to memory and reads them again."""
    return _attention(problem, problem["queries"] * problem["keys"], 2)


def _tiles(configuration: Configuration, problem: Problem) -> list[tuple[str, int]]:
    return [("queries", int(configuration.get("block_q", 1))), ("keys", int(configuration.get("block_k", 1)))]


def _attention(problem: Problem, pairs: float, scores_moved: int) -> tuple[float, float]:
    B, H, G, Tq, Tk, D = (problem[name] for name in ("batch", "heads", "groups", "queries", "keys", "width"))
    size = SIZES.get(problem.dtype, 2)
    read = 2 * B * (H * Tq + G * min(Tk, problem["reach"])) * D
    moved = read + scores_moved * B * H * Tq * Tk
    learns = problem["gradients"]
    return 4 * D * B * H * pairs * (TRAINED if learns else 1), size * moved * (2 if learns else 1)


def chunks(configuration: Configuration, problem: Problem) -> tuple[float, float]:
    """(FLOPs, bytes) of linear attention in chunks: scores inside each, and one state per chunk."""
    B, H, T, F, D = (problem[name] for name in ("batch", "heads", "positions", "features", "width"))
    C = min(int(configuration["positions"]), T) if dict(problem.flags).get("causal", True) else 0
    flops = B * H * T * (2 * C * (F + D) + 4 * F * D)
    moved = SIZES.get(problem.dtype, 2) * B * H * 2 * T * (F + D)
    learns = problem["gradients"]
    return flops * (3 if learns else 1), moved * (2 if learns else 1)
