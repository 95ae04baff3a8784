"""What attention in a window costs, for the blocks that have one; see `kernels.sliding_window_attention`."""

from __future__ import annotations

from kernels.sliding_window_attention import tiling
from searchspace.cost import Cost, Shape, kept, matmul


def window_cost(shape: Shape, *, width: int, key_value_width: int, heads: int, window: int, causal: bool) -> Cost:
    """Scores are counted tile by tile, the masked ones too; activations as a fused kernel keeps them."""
    tiles = tiling(shape.length, shape.length, window, causal)
    stretches = shape.batch * tiles.count
    rows = stretches * tiles.rows
    return (
        matmul(tiles.rows, width // heads, 2 * tiles.columns, count=stretches * heads)
        + kept(shape, rows * (2 * width + heads))  # queries, results and normalisers of the tiles
        + kept(shape, stretches * tiles.columns * 2 * key_value_width + rows * tiles.columns)  # keys, values; the mask
    )
