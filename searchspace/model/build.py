"""Builds the PyTorch module of an architecture and computes its cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from searchspace.cost import Cost, Shape
from searchspace.model.architecture import Architecture
from searchspace.parts import Part


def as_architecture(architecture: Architecture | str | Path) -> Architecture:
    """`architecture` itself, or the architecture in a file or in YAML text; text has several lines.

    Raises SpaceError if it is not an architecture.
    """
    if isinstance(architecture, Architecture):
        return architecture
    if isinstance(architecture, str) and "\n" in architecture:
        return Architecture.parse(architecture)
    return Architecture.load(architecture)


def build(architecture: Architecture | str | Path) -> nn.Module:
    """The module of an architecture, with new weights from the current random state of torch.

    Raises SpaceError if it is not an architecture, or if its values do not fit together.
    """
    return as_architecture(architecture).configured.build()


def cost(architecture: Architecture | str | Path, shape: Shape | None = None, **shape_fields: Any) -> Cost:
    """The cost of one call for an input of `shape`, or of its fields: `cost(a, length=512, batch=8)`.

    Tied tables and shared weights count once. FLOPs are those of `torch.utils.flop_counter`; see `searchspace.cost` for
    halting models. Raises SpaceError if it is not a valid architecture, ValueError if `shape` and fields are given.
    """
    if shape is not None and shape_fields:
        raise ValueError(f"give either shape or its fields, but got both: {shape} and {', '.join(shape_fields)}.")
    shape = Shape(**shape_fields) if shape is None else shape
    return Part(name="model", shape=shape, block=as_architecture(architecture).configured).cost()
