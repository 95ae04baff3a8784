"""A point of a space: one way to fill its holes."""

from __future__ import annotations

from dataclasses import dataclass

from searchspace.model.architecture import Architecture
from searchspace.tree import Scalar


@dataclass(frozen=True)
class Point:
    """The value chosen for each hole (plain JSON, by path), and the resulting architecture."""

    choices: dict[str, Scalar]
    architecture: Architecture
