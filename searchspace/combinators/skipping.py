"""Skipping computations whose results are never read: whole sequences of a batch, and single positions.

The results are exact up to rounding. Blocks never mix the sequences of a batch. After the last block that mixes
positions, each position is computed independently, so the needed positions can be gathered into one sequence. B batch,
T time, C model width, R needed positions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from torch import Tensor, nn

from searchspace.contract import Context
from searchspace.lanes import of_places
from searchspace.parts import blocks_below
from searchspace.registry import Configured


def pointwise(block: Configured) -> bool:
    """Whether the block, with all blocks inside it, computes each position independently."""
    return all(below.type.module.capabilities.pointwise for below in blocks_below((block,)))


def behind_mixers(blocks: tuple[Configured, ...]) -> int:
    """How many of `blocks` come after the last one that reads other positions."""
    mixers = [i for i, block in enumerate(blocks) if not pointwise(block)]
    return len(blocks) - 1 - mixers[-1] if mixers else len(blocks)


def hands_over(blocks: tuple[Configured, ...]) -> bool:
    """Whether a block writes a lane, which is for all sequences at once."""
    return any(block.type.module.writes(block.config) for block in blocks_below(blocks))


def separable(context: Context) -> bool:
    """Whether a call can be made for some of the sequences alone: no state or choice covers all of them."""
    return context.streams is None and context.choices is None


def at_positions(blocks: Iterable[nn.Module], x: Tensor, wanted: Tensor, context: Context) -> Tensor:
    """Apply pointwise `blocks` to x: [B, T, C] where `wanted`, [B, T] of bool, is True; x is unchanged elsewhere."""
    places = wanted.flatten().nonzero().squeeze(1)
    if not len(places):
        return x
    take = of_places((places // x.shape[1])[None], (places % x.shape[1])[None])
    lanes = {name: lane for name, lane in context.lanes.items() if {"B", "T"} <= {*lane.axes.split()}}
    bare = replace(context, padding=None, positions=None, documents=None, lanes=lanes).mapped(take)
    run = take(x, "B T C")  # [1, R, C]
    for block in blocks:
        run = block(run, bare)
    return x.flatten(0, 1).to(run.dtype).index_copy(0, places, run[0]).view_as(x)
