"""A point of a space: one way to fill its holes."""

from __future__ import annotations

from dataclasses import dataclass

from searchspace.model.architecture import Architecture
from searchspace.tree import Scalar


@dataclass(frozen=True)
class Point:
    """What was chosen for each hole (plain JSON, by path) and the architecture that results."""

    choices: dict[str, Scalar]
    architecture: Architecture
