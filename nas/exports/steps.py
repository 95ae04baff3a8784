"""Modules that torch.export traces: the whole input, a prompt that also returns the state, and one more symbol.

A state is a flat list of tensors: the states of the blocks, and the number of positions read, unless it follows from
the size of the stored keys. B batch, T time, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from searchspace.contract import Context, Streams

PAIR = {"k": "k_new", "v": "v_new"}  # new keys and values wait next to the others until there are many
# Axes of a state whose size follows from a length; that of a ring may do so until it is full.
OPEN = {
    "B": torch.export.Dim.DYNAMIC,
    "T": torch.export.Dim.DYNAMIC,
    "S": torch.export.Dim.DYNAMIC,
    "W": torch.export.Dim.AUTO,
}
POSITIONS = "state_positions"
Layout = dict[str, dict[str, str]]  # the axes of the tensors of each block, by its path and their names


class Whole(nn.Module):
    """The whole input at once: the inputs of the model -> its output."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.net(*inputs)


class Prompt(nn.Module):
    """tokens: [B, T], or a source [B, S] and a target [B, T] -> logits [B, T, V] and the state after them."""

    def __init__(self, net: Any) -> None:
        super().__init__()
        self.net = net
        self.layout: Layout = {}

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        streams, tokens = Streams(), inputs[-1]
        if len(inputs) == 2:
            context = Context()
            self.net.encode(inputs[0], context)
            context.streams = streams
            logits = self.net.decode(tokens, context)
        else:
            logits = self.net(tokens, Context(streams=streams))
        slots = {key: _joined(slot) for key, slot in streams.slots.items()}
        self.layout = {key: {name: streams.types[key][name] for name in slot} for key, slot in slots.items()}
        states = tuple(state for slot in slots.values() for state in slot.values())
        if POSITIONS not in names(self.layout, pair=len(inputs) == 2):
            return logits, *states
        return logits, *states, torch.full((1,), tokens.shape[1], dtype=torch.int64, device=tokens.device)


class Step(nn.Module):
    """token: [B, 1] and the state -> logits [B, 1, V] and the next state. pair: whether there is an encoder."""

    def __init__(self, net: Any, layout: Layout, *, pair: bool) -> None:
        super().__init__()
        self.net, self.layout, self.pair = net, layout, pair
        self.counts = POSITIONS in names(layout, pair=pair)

    def forward(self, token: Tensor, *states: Tensor) -> tuple[Tensor, ...]:
        streams, waiting = Streams(), list(states)
        streams.slots = {key: {name: waiting.pop(0) for name in slot} for key, slot in self.layout.items()}
        if self.counts:
            length: Any = waiting[0].item()
            torch._check(length >= 1)
            streams.length = length
        else:
            streams.length = next(slot["k"].shape[2] for slot in streams.slots.values() if "k" in slot)
        context = Context(streams=streams)
        if self.pair:
            context.write("memory", token.new_zeros(0), "S")  # its keys and values are in the state
        logits = (self.net.decode if self.pair else self.net)(token, context)
        slots = {key: _joined(slot) for key, slot in streams.slots.items()}
        found = (logits, *(slots[key][name] for key, kept in self.layout.items() for name in kept))
        return (*found, waiting[0] + token.shape[1]) if self.counts else found


def names(layout: Layout, *, pair: bool) -> list[str]:
    """The names of the tensors of a state. pair: whether there is an encoder, whose keys do not give the positions."""
    found = [f"state_{number}_{name}" for number, slot in enumerate(layout.values()) for name in slot]
    grows = any("k" in slot for slot in layout.values()) and not pair
    return found if grows else [*found, POSITIONS]


def sizes(layout: Layout, *, pair: bool) -> list[dict[int, Any]]:
    """The dynamic dimensions of each tensor of a state, in the order of `names`."""
    found = [
        {place: OPEN[axis] for place, axis in enumerate(axes.split()) if axis in OPEN}
        for slot in layout.values()
        for axes in slot.values()
    ]
    return found + [{} for _ in names(layout, pair=pair)[len(found) :]]


def _joined(slot: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A slot with its new keys and values appended to the others."""
    found = {name: state for name, state in slot.items() if name not in PAIR.values()}
    for name, new in PAIR.items():
        if new in slot:
            found[name] = torch.cat([found[name], slot[new]], dim=2)
    return found
