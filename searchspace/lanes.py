"""Lanes: named tensors that blocks pass to later blocks in addition to the stream.

A lane declares its axes as text, "B T C": B is the batch and T the positions of the stream; other letters are free.
What happens to a lane when a block is called for some of the sequences, or at some of the positions, follows from its
axes alone, so it is written once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

# Lanes that a caller may give to a model: the output of an encoder and its padding (True at real positions), the part
# of the input that a position belongs to (a negative number belongs to all parts), and the positions that read all
# others and that all others read.
GIVEN_LANES = {"memory": "B S C", "memory_padding": "B S", "segments": "B T", "global_positions": "B T"}

Change = Callable[[Tensor, str], Tensor]


@dataclass(frozen=True)
class Lane:
    """A tensor with its axes. module: what made it, if a reader needs that too."""

    tensor: Tensor
    axes: str
    module: nn.Module | None = None


def axis(axes: str, letter: str) -> int | None:
    """The dimension that `letter` has in `axes`; None if there is none."""
    letters = axes.split()
    return letters.index(letter) if letter in letters else None


def once(change: Change) -> Change:
    """`change`, which gives the same result for the same tensor, so that two lanes of one tensor stay one."""
    known: dict[int, tuple[Tensor, Tensor]] = {}

    def changed(tensor: Tensor, axes: str) -> Tensor:
        if id(tensor) not in known:
            known[id(tensor)] = (tensor, change(tensor, axes))
        return known[id(tensor)][1]

    return changed


def of_rows(rows: Tensor) -> Change:
    """Keeps the sequences `rows` of the batch, [n] of int64."""
    return lambda tensor, axes: tensor if axis(axes, "B") is None else tensor[rows]


def of_places(rows: Tensor, places: Tensor) -> Change:
    """Takes position places[n, l] of sequence rows[n, l]: B becomes N, T becomes L. Both are [N, L] of int64.

    A tensor without positions is that of sequence rows[n, 0].
    """

    def change(tensor: Tensor, axes: str) -> Tensor:
        time = axis(axes, "T")
        if axis(axes, "B") is None:
            return tensor
        if time is None:
            return tensor[rows[:, 0]]
        return tensor.movedim(time, 1)[rows, places].movedim(1, time)

    return change
