"""Which values of the holes of a block can be part of an architecture, and which of none.

A value is supported when what stands beside it can be filled so that all of it fits together. The search goes through
combinations until it has found one for each value; a value is given up only when every combination with it has failed,
so where there are too many to be tried the value is taken to fit, as is all that depends on blocks that are left open.
A real interval stands for its ends and its middle.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from searchspace.errors import Problem
from searchspace.language.holes import labels, plain
from searchspace.language.traversal import BODY, REPEAT, children
from searchspace.tree import Block, Choice, Floats, Hole, Integers, Same, Scalar, Value, has_holes

TRIES = 4000  # combinations, before a value is taken to fit
RANGE = 1024  # numbers that are all tried; of a longer range its ends
FILLINGS = 64  # of a block that stands in another, beyond which it is left open
SHOWN = 6  # values in one message
NEAR = 64  # how far from a number another is looked for


class Undecided(Exception):
    """What was asked depends on a block that is left open."""


class Open:
    """A block, or a list of them, of which nothing is known; whoever looks at it learns that it is undecided."""

    def _undecided(self, *_: Any) -> Any:
        raise Undecided

    __class__ = property(_undecided)
    __getattr__ = __getitem__ = __len__ = __bool__ = __iter__ = _undecided
    __eq__ = __lt__ = __le__ = __gt__ = __ge__ = _undecided
    __hash__ = object.__hash__


OPEN: Any = Open()
Taken = tuple[int, type, Scalar]  # a value of a hole: which hole, by identity, and the value or label


@dataclass(frozen=True)
class Filling:
    """One way to fill a part of a description, and the values of holes that it takes."""

    value: Any
    taken: tuple[Taken, ...] = ()


@dataclass(frozen=True)
class Refused:
    """Values of one hole that nothing goes with, what was said against the first of them, and what would fit."""

    hole: Hole
    values: tuple[Scalar, ...]
    reason: str
    instead: tuple[Scalar, ...]

    def problem(self, path: str) -> Problem:
        """In words, at the place of the hole."""
        named = ", ".join(map(_shown, self.values[:SHOWN])) + (", ..." if len(self.values) > SHOWN else "")
        fits = f" These would fit: {', '.join(map(_shown, self.instead[:SHOWN]))}." if self.instead else ""
        verb = "fits" if len(self.values) == 1 else "fit"
        message = f"{named} {verb} nothing that can stand around it. For one: {self.reason}{fits}"
        return Problem(message, self.hole.mark, path)


def _shown(value: Scalar) -> str:
    return repr(value) if isinstance(value, str) else plain(value)


Attempt = Callable[[tuple[Any, ...]], str | None]  # what is wrong with a combination; may raise Undecided
Holes = Mapping[str, Hole]  # by name, for those that are tied


def fillings(value: Value, named: Holes) -> list[Filling] | None:
    """Every way to fill a scalar, or a hole for one; None where it is not known here."""
    match value:
        case Choice():
            ways: list[Filling] = []
            for label, option in zip(labels(value), value.options, strict=True):
                inner = fillings(option, named)
                if inner is None:
                    return None
                taken = (id(value), type(label), label)
                ways += [Filling(way.value, (taken, *way.taken)) for way in inner]
            return ways
        case Integers() | Floats():
            return [Filling(number, ((id(value), type(number), number),)) for number in numbers(value)]
        case Same():
            home = named.get(value.name)
            known = None if home is None else fillings(home, named)
            return None if known is None else [Filling(way.value) for way in known]
        case Block():
            return _blocks(value, named)
        case tuple():
            return _lists(value, named)
    return [Filling(value)]


def numbers(hole: Integers | Floats) -> Iterable[int | float]:
    """Those of a hole that are tried."""
    if isinstance(hole, Integers):
        every = range(hole.low, hole.high + 1, hole.step)
        return every if len(every) <= RANGE else (hole.low, hole.high)
    return dict.fromkeys(
        (hole.low, (hole.low + hole.high) / 2, hole.high) if hole.step is None else (hole.low, hole.high)
    )


def by_field(block: Block, named: Holes) -> dict[str, list[Filling]]:
    """Every way to fill each field of a block; what is not known, or drawn for each copy of a repeat, is left open."""
    found = {}
    for name, value in block.fields.items():
        copied = block.name == REPEAT and name == BODY and holds_each(value)
        found[name] = (None if copied else fillings(value, named)) or [Filling(OPEN)]
    return found


def _blocks(block: Block, named: Holes) -> list[Filling]:
    """Every way to fill a block, or one that is left open where there are many."""
    if not has_holes(block):
        return [Filling(block)]
    ways = _product(list(by_field(block, named).values()))
    if ways is None:
        return [Filling(OPEN)]
    return [
        Filling(Block(block.name, dict(zip(block.fields, way.value, strict=True)), block.mark), way.taken)
        for way in ways
    ]


def holds_each(value: Value) -> bool:
    """Whether anything in `value` is drawn for each copy of a repeat."""
    return getattr(value, "each", False) is True or any(map(holds_each, children(value)))


def _lists(items: tuple[Value, ...], named: Holes) -> list[Filling]:
    ways = _product([fillings(item, named) for item in items])
    if ways is None:
        return [Filling(OPEN)]
    # An option that is a list takes its place in the list around it.
    return [Filling(tuple(_spread(items, way.value)), way.taken) for way in ways]


def _spread(items: Sequence[Value], filled: Sequence[Any]) -> Iterator[Any]:
    for item, value in zip(items, filled, strict=True):
        if type(value) is tuple and type(item) is not tuple:
            yield from value
        else:
            yield value


def _product(parts: list[list[Filling] | None]) -> list[Filling] | None:
    """All combinations, each value a tuple; None where a part is not known, or there are too many."""
    count = 1
    for part in parts:
        count *= len(part) if part is not None else FILLINGS + 1
        if count > FILLINGS:
            return None
    combinations = itertools.product(*(part or () for part in parts))
    return [
        Filling(tuple(way.value for way in ways), tuple(t for way in ways for t in way.taken)) for ways in combinations
    ]


def unsupported(parts: Sequence[Sequence[Filling]], attempt: Attempt) -> dict[Taken, str]:
    """The values of holes that are in no combination which `attempt` has nothing against, with what it says."""
    holding: dict[Taken, tuple[int, list[Filling]]] = {}
    for place, part in enumerate(parts):
        for way in part:
            for taken in way.taken:
                holding.setdefault(taken, (place, []))[1].append(way)
    refused: dict[Taken, str] = {}
    seen: set[Taken] = set()
    for taken, (place, ways) in holding.items():
        if taken in seen:
            continue
        found, reason = first_fit([*parts[:place], ways, *parts[place + 1 :]], attempt)
        if found is None:
            refused[taken] = reason
        seen.update(other for way in found or () for other in way.taken)
    return refused


def first_fit(parts: Sequence[Sequence[Filling]], attempt: Attempt) -> tuple[tuple[Filling, ...] | None, str]:
    """A combination that fits, or None with what is wrong with the first; empty where there are too many to try."""
    first = ""
    for tried, ways in enumerate(itertools.product(*parts)):
        if tried == TRIES:
            return (), ""
        try:
            message = attempt(tuple(way.value for way in ways))
        except Undecided:
            message = None
        if message is None:
            return ways, ""
        first = first or message
    return None, first


def refusals(parts: Sequence[Sequence[Filling]], attempt: Attempt, holes: Mapping[int, Hole]) -> list[Refused]:
    """What `unsupported` finds, hole by hole; `holes` by identity."""
    refused = unsupported(parts, attempt)
    found = []
    for key in dict.fromkeys(taken[0] for taken in refused):
        values = [taken for taken in refused if taken[0] == key]
        every = dict.fromkeys(taken for part in parts for way in part for taken in way.taken if taken[0] == key)
        fit = [taken[2] for taken in every if taken not in refused]
        instead = _by_distance(values[0], [*_near(values[0], parts, attempt), *fit])
        found.append(Refused(holes[key], tuple(value[2] for value in values), refused[values[0]], instead))
    return found


def _by_distance(taken: Taken, values: Sequence[Scalar]) -> tuple[Scalar, ...]:
    """Numbers by how far they are from a whole number that was refused, and others after them."""

    def distance(value: Any) -> float:
        return abs(value - taken[2]) if taken[1] is int is type(value) else math.inf

    return tuple(sorted(dict.fromkeys(values), key=distance))


def _near(taken: Taken, parts: Sequence[Sequence[Filling]], attempt: Attempt) -> Iterator[int]:
    """The nearest numbers below and above that would fit in the place of a whole number."""
    number: Any = taken[2]
    place = next((i for i, part in enumerate(parts) for way in part if taken in way.taken), 0)
    if taken[1] is not int or not all(way.value == number for way in parts[place] if taken in way.taken):
        return  # nor where it is a number within a block
    for others in (range(number - 1, max(number - NEAR, 0), -1), range(number + 1, number + NEAR)):
        for other in others:
            if first_fit([*parts[:place], [Filling(other)], *parts[place + 1 :]], attempt)[0]:
                yield other
                break
