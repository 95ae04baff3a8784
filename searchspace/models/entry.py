"""How a call enters a model: positions, the pieces of a stream, dropout on the sum of embedding and position."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import torch
from torch import Tensor

from searchspace.contract import Context, PositionModule
from searchspace.cost import Cost, Shape
from searchspace.parts import Part, configured_below
from searchspace.registry import Configured


def entered(context: Context | None, inputs: Tensor, position: PositionModule) -> Context:
    """The context of one call on `inputs` [B, T, ...]: its positions follow those that a stream has read before.

    Losses and statistics of the call still reach the caller's context.
    """
    context = Context() if context is None else context
    start = 0
    if context.streams is not None:
        if context.padding is not None:
            raise ValueError("padding must be None while streaming: feed each piece without padding.")
        context.streams.rewind()
        start = context.streams.length
    positions = torch.arange(start, start + inputs.shape[1], device=inputs.device)
    return replace(context, positions=positions, position=position)


def left(context: Context) -> None:
    """The call that `entered` has passed through all blocks: a stream is longer by its positions."""
    if context.streams is not None and context.positions is not None:
        context.streams.length += len(context.positions)


def cannot_stream(blocks: Iterable[Configured]) -> list[str]:
    """The names of the blocks that cannot read their input in pieces, sorted."""
    names = {below.type.name for block in blocks for below in configured_below(block) if not _streams(below)}
    return sorted(names)


def _streams(block: Configured) -> bool:
    return block.type.role != "block" or block.type.module.capabilities.streaming


def position_parts(position: Configured, dropout: float, width: int, shape: Shape) -> list[Part]:
    """The position and the mask of the dropout on the sum, one byte an element."""
    parts = [Part(name="position", shape=shape, block=position)]
    if dropout:
        parts.append(Part(name="dropout", shape=shape, own=Cost(activation_bytes=shape.rows * width)))
    return parts
