"""Helpers for the start of a model's call: its context, the pieces of a stream, and norm and dropout of the input."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional as F

from searchspace.contract import Context, PositionModule
from searchspace.cost import Cost, Shape
from searchspace.parts import Part, configured_below
from searchspace.registry import Configured


def entered(context: Context | None, inputs: Tensor, position: PositionModule, *, front: int = 0) -> Context:
    """The context of one call on `inputs` [B, T, ...]. In streaming, its positions continue after the previous piece.

    front: number of positions that are added before the inputs. They are real and global and belong to all segments.
    Losses and statistics of the call go into the caller's context.

    Raises ValueError if there is padding while streaming.
    """
    context = Context() if context is None else context
    start = 0
    if context.streams is not None:
        if context.padding is not None:
            raise ValueError("padding must be None while streaming: feed each piece without padding.")
        context.streams.rewind()
        start = context.streams.length
    positions = torch.arange(start, start + front + inputs.shape[1], device=inputs.device)
    padding, segments, marks = context.padding, context.segments, context.global_positions
    if front and padding is not None:
        padding = F.pad(padding, (front, 0), value=True)
    if front and segments is not None:
        segments = F.pad(segments, (front, 0), value=-1)
    if front and marks is not None:
        marks = F.pad(marks, (front, 0), value=True)
    inner = replace(context, positions=positions, position=position, padding=padding, segments=segments)
    inner.global_positions = marks
    return inner


def left(context: Context) -> None:
    """Finish a call with a context from `entered`: a stream grows by the positions of the call."""
    if context.streams is not None and context.positions is not None:
        context.streams.length += context.positions.shape[0]  # a trace keeps it open, unlike `len`


def cannot_stream(blocks: Iterable[Configured]) -> list[str]:
    """The names of the blocks that cannot read their input in pieces, sorted."""
    names = {below.type.name for block in blocks for below in configured_below(block) if not _streams(below)}
    return sorted(names)


def _streams(block: Configured) -> bool:
    return block.type.role != "block" or block.type.module.able(vars(block.config)).streaming


def position_parts(
    position: Configured, dropout: float, width: int, shape: Shape, norm: Configured | None = None
) -> list[Part]:
    """The position, the norm of the sum, and the mask of its dropout, one byte per element."""
    parts = [Part(name="position", shape=shape, block=position)]
    if norm is not None and norm.type.name != "none":  # few models have one
        parts.append(Part(name="input_norm", shape=shape, block=norm))
    if dropout:
        parts.append(Part(name="dropout", shape=shape, own=Cost(activation_bytes=shape.rows * width)))
    return parts
