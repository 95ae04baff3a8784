"""Checks that a position can rotate the queries and keys of the attention blocks of a model."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

import torch

from searchspace.parts import configured_below
from searchspace.registry import Configured, block_type


def check_position(position: Configured, blocks: Iterable[Configured]) -> None:
    """Raises ValueError if `position` cannot rotate the heads of one of `blocks`, or of a block inside them."""
    if position.type.module.rotate is block_type("none", "position").module.rotate:
        return  # it rotates nothing
    for block in configured_below(tuple(blocks)):
        if block.type.role == "block" and block.type.module.capabilities.turned:
            if getattr(block.config, "over", "self") == "memory":
                continue  # positions of two sequences cannot be compared, so nothing is rotated
            try:
                _rotate(position, block.config.dim // block.config.heads)
            except ValueError as error:
                heads = f"dim={block.config.dim}, heads={block.config.heads}"
                raise ValueError(f"{block.type.name} with {heads}: {error}") from None


@cache
def _rotate(position: Configured, width: int) -> None:
    """Rotates one head of `width`. Raises ValueError if the position does not support that width.

    On the device "meta", PyTorch would import its compiler for this, which takes 2 s of CPU time.
    """
    heads = torch.zeros(1, 1, 1, width)
    module: Any = position.build()
    module.rotate(heads, torch.zeros(1, dtype=torch.int64))
