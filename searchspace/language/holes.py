"""Functions of one hole: its valid values, random draws, and the position of a number between its ends.

A choice is filled with the *label* of an option, a numeric hole with a number. Labels are plain scalars, so recorded
choices are JSON. They keep their meaning if options are added or reordered. The label of a scalar is the scalar, that
of a block its name (its oldest name, if it was renamed), and that of a list of blocks their names joined by `+`. The
second option with the same name is `name#2`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from searchspace.errors import SpaceError, nearest
from searchspace.tree import Block, Choice, Floats, Hole, Integers, Same, Scalar, Value

DIGITS = 6  # of a random real number: enough for a search, and readable


class Grid(Sequence[float]):
    """low, low + step, ... up to high, computed in decimal so that 0.1 + 0.2 is 0.3."""

    def __init__(self, hole: Floats):
        self._low, self._step = Decimal(repr(hole.low)), Decimal(repr(hole.step))
        self._count = int((Decimal(repr(hole.high)) - self._low) / self._step) + 1

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self._count))]
        return float(self._low + self._step * range(self._count)[index])

    def index(self, value: Any, start: int = 0, stop: int | None = None) -> int:
        """The place of `value` on the grid. Raises ValueError if it is not on the grid."""
        place = round((Decimal(repr(value)) - self._low) / self._step)
        if not 0 <= place < self._count or self[place] != value:
            raise ValueError(f"{value!r} is not on the grid")
        return place

    def __contains__(self, value: object) -> bool:
        try:
            return type(value) is float and math.isfinite(value) and self.index(value) >= 0
        except ValueError:
            return False


def labels(choice: Choice) -> tuple[Scalar, ...]:
    """The labels of the options, in order. All are different."""
    taken = {option: 1 for option in choice.options if isinstance(option, str)}
    return tuple(
        option if option is None or isinstance(option, bool | int | float | str) else _unused(_word(option), taken)
        for option in choice.options
    )


def sorted_numbers(hole: Hole) -> list[int | float] | None:
    """The numbers of a choice of numbers, by size; None for any other hole."""
    if not isinstance(hole, Choice) or len(hole.options) < 2:
        return None
    kinds = {type(each) for each in hole.options}
    return sorted(hole.options) if kinds in ({int}, {float}) else None  # type: ignore[arg-type]


def option(choice: Choice, label: object) -> Value:
    """The option called `label`. Raises SpaceError with the nearest label if there is none."""
    known = labels(choice)
    for name, value in zip(known, choice.options):
        if same_scalar(name, label):
            return value
    near = nearest(str(label), [str(name) for name in known])
    raise SpaceError(f"{label!r} is not one of {', '.join(repr(name) for name in known)}.{near}")


def values(hole: Hole) -> Sequence[Scalar] | None:
    """All valid values of the hole, in order; None for a real interval."""
    match hole:
        case Choice():
            return labels(hole)
        case Integers():
            return range(hole.low, hole.high + 1, hole.step)
        case Floats(step=None):
            return None if hole.high > hole.low else (hole.low,)
    return Grid(hole)


def admits(hole: Hole, value: object) -> bool:
    """Whether `value` is a valid value of the hole."""
    if isinstance(hole, Floats):
        known = values(hole)
        return type(value) is float and (hole.low <= value <= hole.high if known is None else value in known)
    if isinstance(hole, Integers):
        return type(value) is int and hole.low <= value <= hole.high and (value - hole.low) % hole.step == 0
    return any(same_scalar(known, value) for known in labels(hole))


def draw(hole: Hole, rng: random.Random) -> Scalar:
    """A random value: uniform, or for `log` uniform in the logarithm."""
    known = values(hole)
    if isinstance(hole, Choice) or (known is not None and not hole.log):
        assert known is not None
        return known[rng.randrange(len(known))]
    if known is not None:
        # A grid value v represents the interval up to the next value, so its weight is log((v + step) / v).
        step = hole.step or 1
        value = hole.low * math.exp(rng.random() * math.log((hole.high + step) / hole.low))
        return known[min(int((value - hole.low) / step), len(known) - 1)]
    return from_unit(hole, rng.random())


def unit(hole: Integers | Floats, value: float) -> float:
    """The position of `value` between the ends, from 0 to 1; for `log` holes in the logarithm."""
    if hole.high == hole.low:
        return 0.0
    if hole.log:
        return math.log(value / hole.low) / math.log(hole.high / hole.low)
    return (value - hole.low) / (hole.high - hole.low)


def from_unit(hole: Integers | Floats, position: float) -> int | float:
    """The value nearest to `position` (0 to 1): the inverse of `unit`."""
    position = min(max(position, 0.0), 1.0)
    distance = hole.high - hole.low
    value = hole.low * (hole.high / hole.low) ** position if hole.log else hole.low + distance * position
    known = values(hole)
    if known is None:
        return min(max(float(f"{value:.{DIGITS}g}"), hole.low), hole.high)
    index = round((value - hole.low) / hole.step) if hole.step else 0
    return known[min(max(index, 0), len(known) - 1)]  # type: ignore[return-value]


def same_scalar(one: object, other: object) -> bool:
    """Equality that distinguishes `true`, 1 and 1.0."""
    return type(one) is type(other) and one == other


def describe(hole: Hole) -> str:
    """The hole in YAML, in one line."""
    match hole:
        case Choice():
            return f"!choice [{', '.join(plain(label) for label in labels(hole))}]"
        case Integers() | Floats():
            tag = "!int" if isinstance(hole, Integers) else "!float"
            step = "" if hole.step in (None, 1) else f", step {hole.step}"
            return f"{tag} {hole.low} to {hole.high}{step}{', log' if hole.log else ''}"


def plain(label: Scalar) -> str:
    """A label in YAML."""
    if label is None:
        return "null"
    return str(label).lower() if isinstance(label, bool) else str(label)


def _word(value: Value) -> str:
    match value:
        case Block():
            return value.name
        case tuple():
            return "+".join(_word(item) for item in value) or "empty"
        case Choice():
            return "choice"
        case Integers():
            return "int"
        case Floats():
            return "float"
        case Same():
            return f"same {value.name}"
    return str(value)


def _unused(word: str, taken: dict[str, int]) -> str:
    """`word`, with the next number if it is taken. The numbers are kept in `taken`, so none is tried twice."""
    name, count = word, taken.get(word, 1)
    while name in taken:
        count += 1
        name = f"{word}#{count}"
    taken[word] = count
    taken[name] = 1
    return name
