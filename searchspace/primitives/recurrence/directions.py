"""Helpers of recurrent blocks: one or two directions, where states start and end, and padding.

A bidirectional block follows Schuster & Paliwal 1997, "Bidirectional Recurrent Neural Networks",
https://doi.org/10.1109/78.650093. A second recurrence with its own weights reads from the end. Each recurrence has half
of the width, and the output is [forward; backward], as in Bahdanau et al. 2015. Padding does not change the state, so
the backward recurrence starts at the last real position, as with packed sequences. `hidden` sets another width.

A decoder may start from the final states of the encoder, as in Sutskever et al. 2014, "Sequence to Sequence Learning
with Neural Networks", https://arxiv.org/abs/1409.3215. The k-th block of the decoder with `start: memory` starts from
the last states of the k-th recurrent block of the encoder, both directions concatenated. B batch, T time, N directions,
G width of the inputs of one direction, H width of the state of one direction, C model width.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from searchspace.checks import at_least
from searchspace.contract import Context
from searchspace.sharing import numbered

Directions = Literal["both", "forward"]
Start = Literal["zeros", "memory"]


def directions(dim: int, *, forward: bool, hidden: int | None = None) -> tuple[int, int]:
    """(N, H) of a block of width `dim`; H is `hidden` if that is given.

    Raises ValueError if `hidden` is below 1, or if there are two directions, no `hidden`, and `dim` is odd.
    """
    at_least(1, hidden=hidden)
    if hidden is not None:
        return 1 if forward else 2, hidden
    if forward:
        return 1, dim
    if dim % 2:
        raise ValueError(f"dim must be even, so that each of two directions has half of it, but got dim={dim}.")
    return 2, dim // 2


def check_start(start: Start, memory: bool) -> None:
    """Raises ValueError if the block starts from the encoder, but the model has none."""
    if start == "memory" and not memory:
        raise ValueError("start='memory' needs the encoder's states, but this model has no encoder; use start='zeros'.")


FINAL = "final"


def final(number: int, name: str) -> str:
    """The lane of the last state `name` of recurrent block `number` of the encoder, [B, N * H]."""
    return f"{FINAL}.{number}.{name}"


class Ends:
    """The first and last states of a block. `number` counts the blocks of the model that start from, or leave, final
    states.
    """

    def __init__(self, *, start: Start, causal: bool, memory: bool) -> None:
        self.starts = start == "memory"
        self.ends = not causal and not memory  # the block is part of an encoder
        self.number = numbered("recurrence that starts from a memory" if self.starts else "recurrence that ends")

    def first(
        self, names: tuple[str, ...], zeros: Tensor, context: Context, slot: dict[str, Tensor] | None
    ) -> list[Tensor]:
        """The states before the first position, like `zeros`: [N, B, H] each.

        They come from the previous piece of a stream, or from the encoder's block with the same number. A block outside
        of a model has no encoder and starts from zeros.
        """
        if slot:
            return [slot[name][None] for name in names]
        if not self.starts or final(self.number, names[0]) not in context.lanes:
            return [zeros for _ in names]
        finals = [context.read(final(self.number, name)) for name in names]  # each [B, N * H]
        return [state.to(zeros.dtype).unflatten(1, (len(zeros), -1)).transpose(0, 1) for state in finals]

    def last(self, context: Context, slot: dict[str, Tensor] | None, **states: Tensor) -> None:
        """Keep the states after the last position, [N, B, H], for the next piece or for the decoder."""
        if slot is not None:  # copies, because slices would keep all states in memory
            slot |= {name: state[0].clone() for name, state in states.items()}
        if self.ends:
            for name, state in states.items():
                context.write(final(self.number, name), state.transpose(0, 1).flatten(1).clone(), "B H")


def by_time(inputs: Tensor, padding: Tensor | None, count: int) -> tuple[Tensor, Tensor | None]:
    """inputs: [B, T, N * G], padding: [B, T] -> [T, N, B, G] in float32 or wider, and a mask [T, N, B, 1] or None.

    The second direction is in reversed order.
    """
    wide = torch.promote_types(inputs.dtype, torch.float32)
    steps = inputs.to(wide).unflatten(2, (count, -1)).permute(1, 2, 0, 3)
    mask = None if padding is None else padding.mT[:, None, :, None].expand(-1, count, -1, -1)
    return _turned(steps), None if mask is None else _turned(mask)


def by_batch(states: Tensor, dtype: torch.dtype) -> Tensor:
    """states: [T, N, B, H] -> [B, T, N * H] in `dtype`, with both directions in the order of time."""
    return _turned(states).permute(2, 0, 1, 3).flatten(2).to(dtype)


def _turned(steps: Tensor) -> Tensor:
    """steps: [T, N, ...] -> the same shape, with the time of the second direction reversed."""
    return steps if steps.shape[1] == 1 else torch.stack([steps[:, 0], steps[:, 1].flip(0)], dim=1)
