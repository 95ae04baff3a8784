"""The footnote about FLOPs of models with halting blocks: at which depth their steps were counted."""

from __future__ import annotations

from collections.abc import Iterator

from searchspace.cost import Shape
from searchspace.model.architecture import Architecture
from searchspace.parts import Part

UNTRAINED = "the depth of an untrained model"


def halting_note(architecture: Architecture, shape: Shape) -> str:
    """How many steps of the halting blocks `Cost.expected_flops` counts for `shape`; "" if no block halts.

    Raises SpaceError if the values of the architecture do not fit together.
    """
    found = depths(architecture, shape)
    if not found:
        return ""
    steps = ", ".join(f"{expected:.3g} of {times}" for expected, times in found)
    source = UNTRAINED if shape.halting_steps is None else "the mean depth measured in training"
    return f"FLOPs count {steps} steps of halting: {source}. Training FLOPs count every step."


def depths(architecture: Architecture, shape: Shape) -> list[tuple[float, int]]:
    """(mean steps, most steps) of the halting blocks, each pair once. Raises as `halting_note` does."""
    root = Part(name="", shape=shape, block=architecture.configured)
    return list(dict.fromkeys(_depths(root)))


def _depths(part: Part) -> Iterator[tuple[float, int]]:
    """(mean steps, most steps) of every halting block at or below `part`."""
    if part.expected is not None and part.block is not None:
        yield part.expected, part.count
    for below in part.below():
        yield from _depths(below)
