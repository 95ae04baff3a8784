"""Architectures of sequence models: the blocks they are made of, the YAML language, spaces, costs and the zoo.

The names below are imported when they are first used, so `import searchspace` alone is fast and does not load torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from searchspace.cost import Cost as Cost
    from searchspace.cost import Shape as Shape
    from searchspace.errors import SpaceError as SpaceError
    from searchspace.model.architecture import Architecture as Architecture
    from searchspace.model.architecture import diff as diff
    from searchspace.model.build import build as build
    from searchspace.model.build import cost as cost_of
    from searchspace.registry import block_types as block_types
    from searchspace.space.point import Point as Point
    from searchspace.space.space import Space as Space
    from searchspace.zoo import load as load_zoo

_HOMES = {
    "Architecture": ("searchspace.model.architecture", "Architecture"),
    "Cost": ("searchspace.cost", "Cost"),
    "Point": ("searchspace.space.point", "Point"),
    "Shape": ("searchspace.cost", "Shape"),
    "Space": ("searchspace.space.space", "Space"),
    "SpaceError": ("searchspace.errors", "SpaceError"),
    "block_types": ("searchspace.registry", "block_types"),
    "build": ("searchspace.model.build", "build"),
    "cost_of": ("searchspace.model.build", "cost"),
    "diff": ("searchspace.model.architecture", "diff"),
    "load_zoo": ("searchspace.zoo", "load"),
}
__all__ = [
    "Architecture",
    "Cost",
    "Point",
    "Shape",
    "Space",
    "SpaceError",
    "block_types",
    "build",
    "cost_of",
    "diff",
    "load_zoo",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _HOMES[name]
    value = getattr(importlib.import_module(module), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
