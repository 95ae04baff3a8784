"""The state of a model that reads a sequence in pieces: typed tensors by the path of their block.

B batch, T time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import copy
from typing import Any, Literal, Protocol

import torch
from torch import Tensor


class Stateful(Protocol):
    """A block that keeps a state; see `searchspace.contract.Primitive`."""

    def states(self, config: Any) -> Mapping[str, str]:
        """The axes of its tensors by name."""


class Streams:
    """The state of a model that reads a sequence in pieces.

    slots: the tensors that each call of a block keeps, by the path of the block in the model (`body.0.of.1`), and the
    number of the call if a block is called more than once for a piece (`body.0.of.1#2`).
    types: the axes of these tensors, which say how a tensor grows, see `kind`.
    rows: one state for each sequence of the batch, once a piece had padding: the sequences have then read different
    numbers of positions. Blocks that read one sequence at a time keep their tensors there.
    """

    def __init__(self) -> None:
        self.length = 0  # positions read so far, padding included
        self.slots: dict[str, dict[str, Tensor]] = {}
        self.types: dict[str, Mapping[str, str]] = {}
        self.rows: list[Streams] = []
        self._calls: dict[str, int] = {}

    def enter(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        """Starts a piece x, [B, T, ...], with padding [B, T] -> the positions of x: [T], or [B, T] if they differ."""
        B, T = x.shape[:2]
        self.rewind()
        if padding is not None and not self.rows:
            self.rows = [Streams() for _ in range(B)]
            for row in self.rows:
                row.length = self.length
        if not self.rows:
            return torch.arange(self.length, self.length + T, device=x.device)
        starts = torch.tensor([row.length for row in self.rows], device=x.device)[:, None]
        if padding is None:
            return starts + torch.arange(T, device=x.device)
        return (starts + padding.cumsum(1) - 1).clamp(min=0)

    def leave(self, length: int, padding: Tensor | None = None) -> None:
        """Ends a piece of `length` positions; padding: [B, T], True at real positions."""
        self.length += length
        for b, row in enumerate(self.rows):
            row.length += length if padding is None else int(padding[b].sum())

    def rewind(self) -> None:
        """Starts a new piece: the next call of each block is its first one again."""
        for state in (self, *self.rows):
            state._calls.clear()

    def slot(self, block: Stateful) -> dict[str, Tensor]:
        """The slot of the next call of `block`; it is empty in the first piece."""
        path = _path(block)
        number = self._calls[path] = self._calls.get(path, 0) + 1
        key = _key(path, number)
        if key not in self.types:
            self.types[key] = block.states(getattr(block, "config", None))
        return self.slots.setdefault(key, {})

    def kept(self, block: Any) -> dict[str, Tensor]:
        """The slot of the latest call of `block`, for a block that reads the state of another."""
        path = _path(block)
        return self.slots[_key(path, self._calls[path])]

    def share(self, block: Stateful) -> None:
        """Divides what the calls of `block` kept for the whole batch among the rows, before they read on alone."""
        path = _path(block)
        for key in [key for key in self.slots if key == path or key.startswith((f"{path}#", f"{path}."))]:
            slot, types = self.slots.pop(key), self.types.get(key, {})
            for b, row in enumerate(self.rows):
                row.slots[key] = {name: tensor[b : b + 1].clone() for name, tensor in slot.items()}
                row.types[key] = types

    def tensors(self) -> Iterator[tuple[dict[str, Tensor], str, str]]:
        """(slot, name, axes) of every tensor of the state."""
        for state in (self, *self.rows):
            for key, slot in state.slots.items():
                for name in slot:
                    yield slot, name, state.types.get(key, {}).get(name, "B")

    def reorder(self, index: Tensor) -> None:
        """Permutes the batch of every state, as beam search does; index: [B] of int64."""
        for slot in self.slots.values():
            slot.update({name: tensor.index_select(0, index) for name, tensor in slot.items()})
        self.rows = [copy(self.rows[b]) for b in (index.tolist() if self.rows else ())]
        for row in self.rows:  # two rows may continue the same one
            row.slots = {key: dict(slot) for key, slot in row.slots.items()}
            row._calls = {}

    def detach(self) -> None:
        """Cuts every state off from the graph of earlier positions, between the pieces of truncated backpropagation.

        The next piece still reads the states, and its gradients end there.
        """
        for slot, name, _ in list(self.tensors()):
            slot[name] = slot[name].detach()

    def nbytes(self) -> int:
        """The memory of all states in bytes."""
        return sum(slot[name].nbytes for slot, name, _ in self.tensors())


def _path(block: Any) -> str:
    return getattr(block, "path", type(block).__name__)


def _key(path: str, number: int) -> str:
    return path if number == 1 else f"{path}#{number}"


def kind(axes: str) -> Literal["growing", "ring", "fixed"]:
    """How a state with these axes changes: growing has a time axis T, a ring has a window W of the last positions."""
    return "growing" if "T" in axes.split() else "ring" if "W" in axes.split() else "fixed"
