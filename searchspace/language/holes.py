"""One hole by itself: what may fill it, how to draw from it, and where a number stands between its ends.

A choice is filled with the *label* of an option, a number with itself. Labels are plain scalars, so recorded choices
are JSON, and they keep their meaning when options are added or reordered: a scalar option is its own label, a block's
is its name (its oldest one, if it was renamed), a list of blocks' the names joined by `+`; a second option of the same
name is `name#2`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from searchspace import registry
from searchspace.errors import SpaceError, nearest
from searchspace.tree import Block, Choice, Floats, Hole, Integers, Same, Scalar, Value

DIGITS = 6  # of a drawn real number: enough to search, few enough to read


class Grid(Sequence[float]):
    """low, low + step, ... up to high; in decimal, so that 0.1 + 0.2 is 0.3."""

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
    """What to call each option, in their order; all different."""
    taken = {option for option in choice.options if isinstance(option, str)}
    return tuple(
        option if option is None or isinstance(option, bool | int | float | str) else _unused(_word(option), taken)
        for option in choice.options
    )


def option(choice: Choice, label: object) -> Value:
    """The option called `label`. Raises SpaceError when there is none."""
    known = labels(choice)
    for name, value in zip(known, choice.options):
        if same_scalar(name, label):
            return value
    near = nearest(str(label), [str(name) for name in known])
    raise SpaceError(f"{label!r} is not one of {', '.join(repr(name) for name in known)}.{near}")


def values(hole: Hole) -> Sequence[Scalar] | None:
    """Everything the hole may be filled with, in order; None for a real interval."""
    match hole:
        case Choice():
            return labels(hole)
        case Integers():
            return range(hole.low, hole.high + 1, hole.step)
        case Floats(step=None):
            return None if hole.high > hole.low else (hole.low,)
    return Grid(hole)


def admits(hole: Hole, value: object) -> bool:
    """Whether the hole may be filled with `value`."""
    if isinstance(hole, Floats):
        known = values(hole)
        return type(value) is float and (hole.low <= value <= hole.high if known is None else value in known)
    if isinstance(hole, Integers):
        return type(value) is int and hole.low <= value <= hole.high and (value - hole.low) % hole.step == 0
    return any(same_scalar(known, value) for known in labels(hole))


def draw(hole: Hole, rng: random.Random) -> Scalar:
    """A random value: uniform, and for `log` numbers uniform in the logarithm."""
    known = values(hole)
    if isinstance(hole, Choice) or (known is not None and not hole.log):
        assert known is not None
        return known[rng.randrange(len(known))]
    if known is not None:
        # A grid value stands for the interval up to the next one, so its weight is log((v + step) / v).
        step = hole.step or 1
        value = hole.low * math.exp(rng.random() * math.log((hole.high + step) / hole.low))
        return known[min(int((value - hole.low) / step), len(known) - 1)]
    return from_unit(hole, rng.random())


def unit(hole: Integers | Floats, value: float) -> float:
    """Where `value` stands between the ends, 0 to 1; on the logarithm for `log` holes."""
    if hole.high == hole.low:
        return 0.0
    if hole.log:
        return math.log(value / hole.low) / math.log(hole.high / hole.low)
    return (value - hole.low) / (hole.high - hole.low)


def from_unit(hole: Integers | Floats, position: float) -> int | float:
    """The value nearest to `position`, 0 to 1: the inverse of `unit`."""
    position = min(max(position, 0.0), 1.0)
    distance = hole.high - hole.low
    value = hole.low * (hole.high / hole.low) ** position if hole.log else hole.low + distance * position
    known = values(hole)
    if known is None:
        return min(max(float(f"{value:.{DIGITS}g}"), hole.low), hole.high)
    index = round((value - hole.low) / hole.step) if hole.step else 0
    return known[min(max(index, 0), len(known) - 1)]  # type: ignore[return-value]


def same_scalar(one: object, other: object) -> bool:
    """Equality that tells `true` from 1 and 1 from 1.0."""
    return type(one) is type(other) and one == other


def describe(hole: Hole) -> str:
    """The hole as it is written, on one line."""
    match hole:
        case Choice():
            return f"!choice [{', '.join(plain(label) for label in labels(hole))}]"
        case Integers() | Floats():
            tag = "!int" if isinstance(hole, Integers) else "!float"
            step = "" if hole.step in (None, 1) else f", step {hole.step}"
            return f"{tag} {hole.low} to {hole.high}{step}{', log' if hole.log else ''}"


def plain(label: Scalar) -> str:
    """A label as YAML writes it."""
    if label is None:
        return "null"
    return str(label).lower() if isinstance(label, bool) else str(label)


def _word(value: Value) -> str:
    match value:
        case Block():
            return registry.recorded_name(value.name)
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


def _unused(word: str, taken: set[str]) -> str:
    name, count = word, 1
    while name in taken:
        count += 1
        name = f"{word}#{count}"
    taken.add(name)
    return name
