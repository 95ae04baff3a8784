"""The costs of causal long-short attention: reading bands of keys, compressing chunks, reading segment by segment.

`config` is that of `causal_long_short_attention`. B batch, T time, C model width.
"""

from __future__ import annotations

from typing import Any

from kernels.sparse_attention.banded_attention import Band
from searchspace.cost import Cost, Shape, kept, matmul
from searchspace.primitives.sparse_attention.dynamic_projection import projection_cost


def far_cost(config: Any, shape: Shape) -> Cost:
    """The cost of compressing chunks and reading their vectors."""
    C, chunks, vectors = config.dim, (shape.length - 1) // config.chunk, config.far(shape.length)
    if vectors is None:
        return Cost()
    compressed = projection_cost(
        C, config.heads, config.slots, shape, chunks=chunks, length=config.chunk, width=config.source_width
    )
    rows = shape.batch * chunks * config.slots
    width = config.parts * C
    projected = matmul(rows, C, width) + kept(shape, rows * C) if config.compress == "hidden" else Cost()
    return compressed + projected + band_cost(config, vectors, shape)


def band_cost(config: Any, read: Band, shape: Shape) -> Cost:
    """The cost of reading a band of keys, with the map of its distances."""
    C, D, count = config.dim, config.dim // config.heads, shape.batch * config.heads
    tiles = count * read.count
    return (
        matmul(read.distances, C, C, backward=1)
        + matmul(read.count * read.rows, D, read.distances, count=count)
        + matmul(read.rows, D, 2 * read.columns, count=tiles)
        + kept(shape, tiles * (read.rows * read.columns + 2 * (read.rows + read.columns) * D))
    )


def mixed_cost(config: Any, shape: Shape) -> Cost:
    """The cost of all segments, without the maps of the positions themselves."""
    C, H, B, L, S, P = config.dim, config.heads, shape.batch, config.chunk, config.slots, config.parts
    behind = 1 if shape.normed else 0  # whether the inputs that are carried have a gradient, that of the norm
    cost, carried = Cost(), config.zeros
    for first in range(0, shape.length, config.segment):
        n = min(config.segment, shape.length - first)
        window = min(config.window - 1, carried)
        cost += band_cost(config, config.near(n, window), shape)
        cost += matmul(B * window, C, P * C, backward=1 + behind) + kept(shape, B * window * (P + 2) * C)
        vectors = config.far(n, carried // L)
        if vectors is not None:
            own, old = (n - 1) // L, carried // L
            cost += band_cost(config, vectors, shape)
            cost += matmul(B * carried, C, H * S, backward=1 + behind) + matmul(B * own * L, C, H * S)
            cost += matmul(S, L, C // H, count=B * old * H, backward=1 + behind)
            cost += matmul(S, L, P * C // H, count=B * own * H)
            cost += matmul(B * old * S, C, P * C)
            cost += kept(shape, B * carried * (H * S + 2 * C) + B * own * L * (H * S + P * C) + B * old * S * C)
        carried = carried + n if config.carried is None else min(carried + n, config.carried)
    start = shape.length - shape.length % config.segment
    before = start + config.zeros if config.carried is None else min(start + config.zeros, config.carried)
    return cost + Cost(state_bytes=B * (before + shape.length % config.segment) * C * shape.element_bytes)
