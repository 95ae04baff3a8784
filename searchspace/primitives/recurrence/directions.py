"""What recurrent blocks share: one direction or two, where the state starts and ends, padding that leaves it alone.

Both ways, after Schuster & Paliwal 1997, "Bidirectional Recurrent Neural Networks", https://doi.org/10.1109/78.650093:
a second recurrence with weights of its own reads from the end, each has half the width, and the halves stand side by
side, [forward; backward], as in Bahdanau et al. 2015. The state passes by padded positions unchanged, so the backward
one starts at the last real position, as with packed sequences.

A decoder may start where the encoder ended, as in Sutskever et al. 2014, "Sequence to Sequence Learning with Neural
Networks", https://arxiv.org/abs/1409.3215: the k-th of its blocks that `start` from the memory from the last states of
the k-th block of the encoder, of both of its directions side by side.
B batch, T time, N directions, G numbers an input brings a direction, H width of a direction's state, C = N * H model
width.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from searchspace.contract import Context
from searchspace.sharing import numbered

Directions = Literal["both", "forward"]
Start = Literal["zeros", "memory"]


def directions(dim: int, *, forward: bool) -> tuple[int, int]:
    """(N, H) of a block of width `dim`. Raises ValueError when two directions do not share it evenly."""
    if forward:
        return 1, dim
    if dim % 2:
        raise ValueError(f"dim must be even, so that each of two directions has half of it, but got dim={dim}.")
    return 2, dim // 2


def check_start(start: Start, memory: bool) -> None:
    """Raises ValueError when there is no encoder to start from."""
    if start == "memory" and not memory:
        raise ValueError("start='memory' is where an encoder ended, but this model has no encoder; use start='zeros'.")


class Ends:
    """Where a block's states start and end; `number` counts the blocks of a model that start, or end, in its way."""

    def __init__(self, *, start: Start, causal: bool, memory: bool) -> None:
        self.starts = start == "memory"
        self.ends = not causal and not memory  # it stands in an encoder
        self.number = numbered("recurrence that starts from a memory" if self.starts else "recurrence that ends")

    def first(
        self, names: tuple[str, ...], zeros: Tensor, context: Context, slot: dict[str, Tensor] | None
    ) -> list[Tensor]:
        """The states in front of the first position, [N, B, H] each, as `zeros` are.

        What the piece before left, or what the encoder's block of this number left; a block by itself has no encoder.
        """
        if slot:
            return [slot[name][None] for name in names]
        if not self.starts or self.number >= len(context.finals):
            return [zeros for _ in names]
        final = context.finals[self.number]  # each [B, N * H]
        return [final[name].to(zeros.dtype).unflatten(1, (len(zeros), -1)).transpose(0, 1) for name in names]

    def last(self, context: Context, slot: dict[str, Tensor] | None, **states: Tensor) -> None:
        """The states after the last position, [N, B, H], stay for the next piece, or for the decoder."""
        if slot is not None:  # copies: slices would hold on to all
            slot |= {name: state[0].clone() for name, state in states.items()}
        if self.ends:
            missing = self.number + 1 - len(context.finals)
            context.finals.extend({} for _ in range(missing))
            context.finals[self.number] = {n: s.transpose(0, 1).flatten(1).clone() for n, s in states.items()}


def by_time(inputs: Tensor, padding: Tensor | None, count: int) -> tuple[Tensor, Tensor | None]:
    """inputs: [B, T, N * G], padding: [B, T] -> [T, N, B, G] in float32 or wider, and mask [T, N, B, 1] or None.

    The second direction runs from the end.
    """
    wide = torch.promote_types(inputs.dtype, torch.float32)
    steps = inputs.to(wide).unflatten(2, (count, -1)).permute(1, 2, 0, 3)
    mask = None if padding is None else padding.mT[:, None, :, None].expand(-1, count, -1, -1)
    return _turned(steps), None if mask is None else _turned(mask)


def by_batch(states: Tensor, dtype: torch.dtype) -> Tensor:
    """[T, N, B, H] -> [B, T, N * H] in `dtype`, both directions in the order of time."""
    return _turned(states).permute(2, 0, 1, 3).flatten(2).to(dtype)


def _turned(steps: Tensor) -> Tensor:
    """[T, N, ...] with the second direction's time turned round."""
    return steps if steps.shape[1] == 1 else torch.stack([steps[:, 0], steps[:, 1].flip(0)], dim=1)
