"""The loop over positions in the definitions of recurrences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

States = tuple[Tensor, ...]


def over(step: Callable[..., States], states: States, inputs: tuple[Tensor | None, ...]) -> tuple[Any, ...]:
    """Each state after every step: [T, ...] each.

    step: the states [...] and the inputs of one position -> the next states. inputs: [T, ...] each, or None.
    """
    every = []
    for t in range(len(inputs[0]) if inputs[0] is not None else 0):
        states = step(states, *(None if each is None else each[t] for each in inputs))
        every.append(states)
    return tuple(torch.stack(each) for each in zip(*every, strict=True))
