"""Helpers of blocks with a window: which heads are dilated, and the cost of a window.

Beltagy et al. 2020, "Longformer", https://arxiv.org/abs/2004.05150, section 3.1.
"""

from __future__ import annotations

from typing import Any

from kernels.sparse_attention.sliding_window_attention import tiling
from searchspace.cost import Cost, Shape, kept, matmul


def check_dilated_heads(dilated: int | None, heads: int, key_value_heads: int | None = None) -> None:
    """Raises ValueError if `dilated` is not between 1 and `heads`, or splits a group of heads that share keys."""
    share = heads // (key_value_heads or heads)
    if dilated is not None and (not 1 <= dilated <= heads or dilated % share):
        raise ValueError(
            f"dilated_heads must be a multiple of {share} between 1 and heads={heads}, but got {dilated}; leave it out "
            "to dilate all heads."
        )


def dilations(heads: int, dilation: int, dilated: int | None) -> list[tuple[slice, int]]:
    """The slices of heads with their dilations. The last `dilated` heads are dilated, or all if it is None."""
    plain = heads - (heads if dilated is None else dilated)
    if dilation == 1 or not plain:
        return [(slice(0, heads), dilation)]
    return [(slice(0, plain), 1), (slice(plain, heads), dilation)]


def window_cost(
    shape: Shape,
    *,
    width: int,
    key_value_width: int,
    heads: int,
    window: int,
    causal: bool,
    dilation: int = 1,
    everywhere: int = 0,
    own_masks: bool = False,
) -> Cost:
    """Scores are counted tile by tile, including masked ones. Activations are those that a fused kernel keeps.

    everywhere: number of keys that every query reads in addition to its window. Each tile then has its own copy of its
    keys. own_masks: whether each sequence has its own mask.
    """
    classes = dilation if shape.length > 1 else 1
    length = -(-shape.length // classes)
    tiles = tiling(length, length, window, causal)
    rows, columns = tiles.count * tiles.rows, tiles.columns + everywhere
    keys = tiles.count * columns if everywhere else rows - tiles.rows + columns  # tiles share their keys
    ragged = dilation > 1 and not causal and shape.length % classes  # then every class has its own mask
    batch = shape.batch * classes
    if ragged:
        keys = tiles.count * columns
    return (
        matmul(tiles.rows, width // heads, 2 * columns, count=batch * tiles.count * heads)
        + kept(shape, batch * rows * (2 * width + heads))  # queries, results and normalisers of the tiles
        + kept(shape, batch * keys * 2 * key_value_width)
        + kept(shape, (batch if ragged or own_masks else 1) * rows * columns)  # the mask
    )


def windows_cost(config: Any, shape: Shape, key_value_width: int, everywhere: int = 0, own_masks: bool = False) -> Cost:
    """The sum of `window_cost` over the groups of heads with equal dilation."""
    cost, groups = Cost(), config.dilations
    for heads, dilation in groups:
        part = heads.stop - heads.start
        cost += window_cost(
            shape,
            width=config.dim * part // config.heads,
            key_value_width=key_value_width * part // config.heads,
            heads=part,
            window=config.window,
            causal=config.causal,
            dilation=dilation,
            everywhere=everywhere,
            own_masks=own_masks,
        )
    return cost + kept(shape, shape.rows * config.dim if len(groups) > 1 else 0)  # the concatenated results
