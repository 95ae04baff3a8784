"""Shared code of the blocks that can read the output of an encoder (the memory) instead of their own sequence."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from searchspace.contract import Context

Over = Literal["self", "memory"]


def check_over(over: Over, memory: bool) -> None:
    """Raises ValueError if the block reads the memory, but the model has no encoder."""
    if over == "memory" and not memory:
        raise ValueError("over='memory' reads an encoder's output, but this model has no encoder; use over='self'.")


def memory_of(context: Context) -> Tensor:
    """The memory [B, S, C]. Raises ValueError if the context has none."""
    if (memory := context.get("memory")) is None:
        raise ValueError("over='memory' needs the encoder's output, but the context has no lane 'memory'.")
    return memory
