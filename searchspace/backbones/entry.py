"""Helpers for the start of a model's call: its context, the pieces of a stream, and norm and dropout of the input."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from searchspace import apart
from searchspace.contract import Context, PositionModule, Primitive
from searchspace.cost import Cost, Shape
from searchspace.lanes import axis
from searchspace.parts import Part, configured_below
from searchspace.registry import Configured


def entered(context: Context | None, inputs: Tensor, position: PositionModule, *, front: int = 0) -> Context:
    """The context of one call on `inputs` [B, T, ...]. In streaming, its positions continue after the previous piece.

    front: number of positions that are added before the inputs. They are real, have every mark, such as that of a
    global position, and belong to all segments. Losses and statistics of the call go into the caller's context; what
    blocks write into lanes does not.

    Raises ValueError if positions are added before several documents in a row.
    """
    context = Context() if context is None else context
    if context.documents is not None and front:
        raise ValueError("A class token belongs to a whole row, so a row cannot hold several documents.")
    context = replace(context, positions=None, lanes=dict(context.lanes))
    if front:
        context = context.mapped(partial(_behind, front))
    if context.streams is not None:
        positions = context.streams.enter(inputs, context.padding)
    elif context.documents is not None:
        positions = apart.positions(context.documents)
    else:
        positions = torch.arange(front + inputs.shape[1], device=inputs.device)
    return replace(context, positions=positions, position=position)


def _behind(front: int, tensor: Tensor, axes: str) -> Tensor:
    """`tensor` with `front` positions before it: True, the whole number -1, or the number 0."""
    time = axis(axes, "T")
    if time is None:
        return tensor
    value = True if tensor.dtype == torch.bool else 0.0 if tensor.is_floating_point() else -1
    return F.pad(tensor.movedim(time, -1), (front, 0), value=value).movedim(-1, time)


def left(context: Context, inputs: Tensor) -> None:
    """Finish a call on `inputs` [B, T] with a context from `entered`: a stream grows by the positions of the call."""
    if context.streams is not None:
        context.streams.leave(inputs.shape[1], context.padding)


def name_paths(model: nn.Module) -> None:
    """Tell every block of `model` its path, which names its state in a stream."""
    for path, module in model.named_modules():
        if isinstance(module, Primitive):
            module.path = path


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
