"""From an architecture to a PyTorch module, and to what it costs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from searchspace.cost import Cost, Shape
from searchspace.model.architecture import Architecture
from searchspace.parts import Part


def as_architecture(architecture: Architecture | str | Path) -> Architecture:
    """An architecture as it is, or read from a file (a path, or text in the language when it has several lines)."""
    if isinstance(architecture, Architecture):
        return architecture
    if isinstance(architecture, str) and "\n" in architecture:
        return Architecture.parse(architecture)
    return Architecture.load(architecture)


def build(architecture: Architecture | str | Path) -> nn.Module:
    """The module of an architecture, with fresh weights from torch's current random state.

    Raises SpaceError when the file is not an architecture, ValueError when its values do not fit together.
    """
    return as_architecture(architecture).configured.build()


def cost(architecture: Architecture | str | Path, shape: Shape | None = None, **shape_fields: Any) -> Cost:
    """What one call costs; `shape`, or its fields: `cost(a, length=512, batch=8)`.

    Tied tables and shared weights count once. FLOPs are those of `torch.utils.flop_counter`.
    """
    return _root(architecture, shape, shape_fields).cost()


def cost_by_part(
    architecture: Architecture | str | Path, shape: Shape | None = None, **shape_fields: Any
) -> list[tuple[str, Cost]]:
    """(path, cost) of every leaf in the order of the forward pass; the costs add up to `cost`."""
    return [leaf for part in _root(architecture, shape, shape_fields).below() for leaf in part.leaves()]


def _root(architecture: Architecture | str | Path, shape: Shape | None, shape_fields: dict[str, Any]) -> Part:
    if shape is not None and shape_fields:
        raise ValueError(f"give either shape or its fields, but got both: {shape} and {', '.join(shape_fields)}.")
    shape = Shape(**shape_fields) if shape is None else shape
    return Part(name="model", shape=shape, block=as_architecture(architecture).configured)
