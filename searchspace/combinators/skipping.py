"""Leaving out what nobody reads: whole sequences of a batch, and positions behind the last block that mixes them.

Exact, to rounding: no block lets the sequences of a batch see one another, and what is behind the last mixer reads
each position by itself, so the positions that are wanted may stand side by side as one sequence.
B batch, T time, C model width, R positions that are wanted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from torch import Tensor, nn

from searchspace.contract import Context
from searchspace.parts import configured_below
from searchspace.registry import Configured


def pointwise(block: Configured) -> bool:
    """Whether the block, with all that it holds, reads each position by itself."""
    return all(below.type.module.capabilities.pointwise for below in configured_below(block))


def behind_mixers(blocks: tuple[Configured, ...]) -> int:
    """How many of `blocks` stand behind the last that reads other positions."""
    mixers = [i for i, block in enumerate(blocks) if not pointwise(block)]
    return len(blocks) - 1 - mixers[-1] if mixers else len(blocks)


def hands_over(blocks: tuple[Configured, ...]) -> bool:
    """Whether a block starts where an encoder ended, or ends where a decoder starts, for all sequences at once."""
    return any(hasattr(below.config, "start") for below in configured_below(blocks))


def separable(context: Context) -> bool:
    """Whether a call could be made for some of the sequences alone: no state, longer source or choice is for all."""
    return context.streams is None and context.source is None and context.choices is None


def of_sequences(context: Context, some: Tensor) -> Context:
    """The context of the sequences `some`, int64; losses and statistics reach the same lists."""

    def of(batch: Tensor | None) -> Tensor | None:
        return None if batch is None else batch[some]

    return replace(
        context,
        padding=of(context.padding),
        segments=of(context.segments),
        memory=of(context.memory),
        memory_padding=of(context.memory_padding),
    )


def at_positions(blocks: Iterable[nn.Module], x: Tensor, wanted: Tensor, context: Context) -> Tensor:
    """Pointwise `blocks` applied to x: [B, T, C] where `wanted`, [B, T] of bool; elsewhere x stays as it is."""
    places = wanted.flatten().nonzero().squeeze(1)
    if not len(places):
        return x
    bare = replace(context, padding=None, positions=None, segments=None, memory=None, memory_padding=None)
    rows = x.flatten(0, 1)
    run = rows[places].unsqueeze(0)  # [1, R, C]
    for block in blocks:
        run = block(run, bare)
    return rows.to(run.dtype).index_copy(0, places, run[0]).view_as(x)
