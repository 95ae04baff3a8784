"""Points as vectors of one length, for models that predict quality.

A choice has a column for each option, 1 where it was taken. A number has one column, its place between the ends of its
hole, 0 to 1, on the logarithm where the hole is; -1 where the hole is not open. A choice that is not open is all zero.
Equal points have equal vectors and different points different ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from searchspace.language.holes import labels, same_scalar, unit
from searchspace.tree import Choice, Hole, Scalar

if TYPE_CHECKING:
    from searchspace.space.space import Point, Space

CLOSED = -1.0


def columns(space: Space) -> list[str]:
    """The name of each column: the hole's path, for a choice with ` = option`."""
    names: list[str] = []
    for path, hole in space.dimensions.items():
        names += [f"{path} = {label}" for label in labels(hole)] if isinstance(hole, Choice) else [path]
    return names


def encode(space: Space, point: Point) -> np.ndarray:
    """The point as a vector of float64, one number for each of `columns`."""
    return _vector(space, point.choices)


def encode_all(space: Space, points: list[Point]) -> np.ndarray:
    """[points, columns] of float64."""
    width = sum(len(hole.options) if isinstance(hole, Choice) else 1 for hole in space.dimensions.values())
    return np.array([_vector(space, point.choices) for point in points]).reshape(len(points), width)


def _vector(space: Space, choices: dict[str, Scalar]) -> np.ndarray:
    numbers: list[float] = []
    for path, hole in space.dimensions.items():
        numbers += _numbers(hole, path in choices, choices.get(path))
    return np.array(numbers)


def _numbers(hole: Hole, is_open: bool, value: Scalar) -> list[float]:
    if isinstance(hole, Choice):
        return [float(is_open and same_scalar(label, value)) for label in labels(hole)]
    if not is_open:
        return [CLOSED]
    assert isinstance(value, int | float)
    return [unit(hole, value)]
