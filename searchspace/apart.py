"""Calls a block for one document, or for one sequence, at a time, where the block itself reads whole rows of a batch.

Several documents in a row: each is put into a row of its own, with padding after its end, and its positions start at 0.
Padding after the end changes nothing, so the results are those of the documents alone. Sequences that have read
different numbers of positions, because their pieces were padded: each reads its real positions with a state of its own.

B batch, T time, C width; N documents of at most L positions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

import torch
from torch import Tensor

from searchspace.lanes import Lane, axis, of_places, once

Context: TypeAlias = Any  # of `searchspace.contract`, which imports this module
Call = Callable[[Tensor, Context], Tensor]


def positions(documents: Tensor) -> Tensor:
    """documents: [B, T] -> [B, T], the place of each position in its document, from 0."""
    place = torch.arange(documents.shape[1], device=documents.device).expand_as(documents)
    return place - place.masked_fill(~_starts(documents), 0).cummax(1).values


def _starts(documents: Tensor) -> Tensor:
    """[B, T], True where a document starts."""
    return torch.cat([torch.ones_like(documents[:, :1], dtype=torch.bool), documents[:, 1:] != documents[:, :-1]], 1)


def documents(call: Call, x: Tensor, context: Context) -> Tensor:
    """call(x, context), x: [B, T, C], for each document alone.

    Raises ValueError if the context is streaming, or the block writes a lane that has no positions.
    """
    assert context.documents is not None
    if context.streams is not None:
        raise ValueError("Documents in one row cannot be read in pieces; read each as a sequence of its own.")
    starts, place = _starts(context.documents), positions(context.documents)
    number = starts.flatten().cumsum(0).view_as(place) - 1  # [B, T], of the document in the batch
    of_row, first = starts.nonzero().unbind(1)  # [N]: the row of each document, and where it starts there
    lengths = number.flatten().bincount(minlength=len(of_row))
    ahead = torch.arange(int(place.max()) + 1, device=x.device)  # [L]
    divide = once(of_places(of_row[:, None], (first[:, None] + ahead).clamp(max=x.shape[1] - 1)))
    inner, real = context.mapped(divide), ahead < lengths[:, None]
    inner.padding = real if inner.padding is None else inner.padding & real
    inner.documents, inner.positions = None, ahead
    before = dict(inner.lanes)
    y = call(divide(x, "B T C"), inner)

    def joined(name: str) -> Tensor:
        lane = inner.lanes[name]
        if (time := axis(lane.axes, "T")) is None:
            raise ValueError(f"The lane {name!r} holds one entry a sequence, but a row holds several documents.")
        return lane.tensor.movedim(time, 1)[number, place].movedim(1, time)

    _take_lanes(context, before, inner.lanes, joined)
    return y[number, place]


def rows(call: Call, x: Tensor, context: Context) -> Tensor:
    """call(x, context), x: [B, T, C], for the real positions of each sequence alone; zeros at padding."""
    assert context.streams is not None and context.positions is not None
    T, every = x.shape[1], context.positions.expand(x.shape[:2])
    padding = torch.ones_like(every, dtype=torch.bool) if context.padding is None else context.padding
    outs: list[Tensor] = []
    found: list[tuple[dict[str, Lane], Tensor]] = []  # the lanes after each call, and the real positions
    before: dict[str, Lane] = {}
    for b, row in enumerate(context.streams.rows):
        places = padding[b].nonzero().squeeze(1)
        if not len(places):
            continue
        take = once(of_places(torch.full_like(places, b)[None], places[None]))
        inner = replace(context.mapped(take), padding=None, positions=every[b, places], streams=row)
        before = dict(inner.lanes)
        outs.append(_spread(call(take(x, "B T C"), inner), places, 1, T))
        found.append((inner.lanes, places))

    def joined(name: str) -> Tensor:
        parts = [(lanes[name], places, axis(lanes[name].axes, "T")) for lanes, places in found]
        return _stacked(
            [lane.tensor if time is None else _spread(lane.tensor, places, time, T) for lane, places, time in parts],
            padding.any(1),
        )

    if found:
        _take_lanes(context, before, found[-1][0], joined)
    return _stacked(outs, padding.any(1)) if found else torch.zeros_like(x)


def _spread(values: Tensor, places: Tensor, time: int, length: int) -> Tensor:
    """`values` at `places` of a dimension `time` of `length` entries; the others are zero."""
    shape = [*values.shape]
    shape[time] = length
    return values.new_zeros(shape).index_copy(time, places, values)


def _stacked(parts: list[Tensor], there: Tensor) -> Tensor:
    """The sequences of `parts` at the rows that are `there`, [B] of bool; the others are zero."""
    return _spread(torch.cat(parts), there.nonzero().squeeze(1), 0, len(there))


def _take_lanes(
    context: Context, before: dict[str, Lane], after: dict[str, Lane], joined: Callable[[str], Tensor]
) -> None:
    """Hands what a call did to its lanes to the context around it."""
    for name in before.keys() - after.keys():
        context.lanes.pop(name, None)
    for name, lane in after.items():
        if lane is not before.get(name):
            context.lanes[name] = replace(lane, tensor=joined(name))
