"""The position of a layer: that of the model, or its own; and whether it can rotate the heads of the layer."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from searchspace.parts import Misplaced, placed
from searchspace.registry import Configured, Position, block_type


@dataclass(frozen=True, kw_only=True)
class Positioned:
    """`position`: the position that this block uses; null takes that of the model.

    The base of the configurations of blocks that rotate their queries and keys, or add a bias to their scores.
    """

    position: Position | None = None


def check_position(model: Configured, blocks: tuple[Configured, ...], field: str = "") -> None:
    """Raises Misplaced if a position cannot rotate the heads of one of `blocks`, or of a block inside them.

    model: the position of the model, which blocks use that have none of their own. One of a block's own must do more
    than add to the input of the model. field: the field of the model that holds the blocks.
    """
    nothing = block_type("none", "position").module
    for steps, block in placed(blocks, (field,) if field else ()):
        if block.type.role == "block" and block.type.module.capabilities.turned:
            if getattr(block.config, "over", "self") == "memory":
                continue  # positions of two sequences cannot be compared, so nothing is rotated
            own = getattr(block.config, "position", None)
            position, kind = own or model, (own or model).type
            if own and kind.name != "none" and (kind.module.rotate, kind.module.bias) == (nothing.rotate, nothing.bias):
                raise Misplaced(
                    f"position: {kind.name} is added to the input of a model, so {block.type.name} cannot have it "
                    "alone; use rotary, alibi or none.",
                    steps,
                )
            if kind.module.rotate is nothing.rotate:
                continue  # it rotates nothing
            try:
                _rotate(position, block.config.dim // block.config.heads)
            except ValueError as error:
                heads = f"dim={block.config.dim}, heads={block.config.heads}"
                raise Misplaced(f"{block.type.name} with {heads}: {error}", steps if field else ()) from None


@cache
def _rotate(position: Configured, width: int) -> None:
    """Rotates one head of `width`. Raises ValueError if the position does not support that width.

    On the device "meta", PyTorch would import its compiler for this, which takes 2 s of CPU time.
    """
    heads = torch.zeros(1, 1, 1, width)
    module: Any = position.build()
    module.rotate(heads, torch.zeros(1, dtype=torch.int64))
