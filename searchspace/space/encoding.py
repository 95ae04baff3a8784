"""Points as vectors of one length, for models that predict quality.

A choice has one column for each option: 1 for the option that was taken. A number has one column: its position between
the ends of its hole, 0 to 1, on a logarithmic scale if the hole has one. So has a choice of numbers: the position of
the number when they are sorted by size. If a hole is not active in the point, its
columns hold 0 (a choice) or -1 (a number). Equal points have equal vectors, and different points different ones.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from searchspace.language.holes import labels, same_scalar, sorted_numbers, unit
from searchspace.space.point import Point
from searchspace.tree import Choice, Hole, Scalar

INACTIVE = -1.0

Dimensions = Mapping[str, Hole]
"""Every hole of a space that can become active, by path: `Space.dimensions`."""


def columns(dimensions: Dimensions) -> list[str]:
    """The name of each column: the hole's path, and for a choice ` = option` after it."""
    names: list[str] = []
    for path, hole in dimensions.items():
        if isinstance(hole, Choice) and sorted_numbers(hole) is None:
            names += [f"{path} = {label}" for label in labels(hole)]
        else:
            names.append(path)
    return names


def encode(dimensions: Dimensions, point: Point) -> np.ndarray:
    """The point as a vector of float64: [columns]."""
    numbers: list[float] = []
    for path, hole in dimensions.items():
        numbers += _numbers(hole, path in point.choices, point.choices.get(path))
    return np.array(numbers)


def _numbers(hole: Hole, is_active: bool, value: Scalar) -> list[float]:
    numbers = sorted_numbers(hole)
    if numbers is not None:
        return [numbers.index(value) / (len(numbers) - 1) if is_active else INACTIVE]  # type: ignore[arg-type]
    if isinstance(hole, Choice):
        return [float(is_active and same_scalar(label, value)) for label in labels(hole)]
    if not is_active:
        return [INACTIVE]
    assert isinstance(value, int | float)
    return [unit(hole, value)]
