"""Finds values of holes that no valid architecture can have.

A value is supported if the other fields of its block can be filled so that everything fits together. The search tries
combinations until it has found one for each value. A value is rejected only if all combinations with it have failed.
If there are too many combinations, or if the answer depends on a block that is left open, the value counts as valid. Of
a real interval only the ends and the middle are tried.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from searchspace.errors import Problem
from searchspace.language.holes import labels, plain
from searchspace.language.traversal import BODY, REPEAT, children
from searchspace.tree import Block, Choice, Floats, Hole, Integers, Same, Scalar, Value, has_holes

TRIES = 4000  # combinations to try before a value counts as valid
RANGE = 1024  # in a range up to this length all numbers are tried, in a longer one only the ends
FILLINGS = 64  # the most ways to fill a nested block; with more it is left open
SHOWN = 6  # the most values in one message
NEAR = 64  # how far from an invalid number to look for a valid one


class Undecided(Exception):
    """Raised if the answer depends on a block that is left open."""


class Open:
    """A block, or a list of blocks, that is left open. Every use of it raises Undecided."""

    def _undecided(self, *_: Any) -> Any:
        raise Undecided

    __class__ = property(_undecided)
    __getattr__ = __getitem__ = __len__ = __bool__ = __iter__ = _undecided
    __eq__ = __lt__ = __le__ = __gt__ = __ge__ = _undecided
    __hash__ = object.__hash__


OPEN: Any = Open()
Taken = tuple[int, type, Scalar]  # a value of a hole: the identity of the hole, and the type and value (or label)


@dataclass(frozen=True)
class Filling:
    """One way to fill a part of a description, and the values of holes that it uses."""

    value: Any
    taken: tuple[Taken, ...] = ()


@dataclass(frozen=True)
class Rejected:
    """Values of one hole that are invalid, the reason for the first of them, and valid values."""

    hole: Hole
    values: tuple[Scalar, ...]
    reason: str
    instead: tuple[Scalar, ...]

    def problem(self, path: str) -> Problem:
        """The problem, at the place of the hole."""
        named = ", ".join(map(_shown, self.values[:SHOWN])) + (", ..." if len(self.values) > SHOWN else "")
        valid = f" Valid values: {', '.join(map(_shown, self.instead[:SHOWN]))}." if self.instead else ""
        verb = "is" if len(self.values) == 1 else "are"
        message = f"{named} {verb} not valid with any of the surrounding values. For example: {self.reason}{valid}"
        return Problem(message, self.hole.mark, path)


def _shown(value: Scalar) -> str:
    return repr(value) if isinstance(value, str) else plain(value)


Attempt = Callable[[tuple[Any, ...]], str | None]  # returns the error of a combination, or None; may raise Undecided
Holes = Mapping[str, Hole]  # the named holes


def fillings(value: Value, named: Holes) -> list[Filling] | None:
    """All ways to fill `value`; None if they cannot be listed."""
    return Fillings(named).of(value)


@dataclass
class Fillings:
    """The ways to fill the values of one description. Each value is listed once, because it is part of many others."""

    named: Holes
    known: dict[int, tuple[Value, list[Filling] | None]] = field(default_factory=dict)  # the value keeps its id in use

    def of(self, value: Value) -> list[Filling] | None:
        """All ways to fill `value`; None if they cannot be listed."""
        if id(value) not in self.known:
            self.known[id(value)] = value, self._listed(value)
        return self.known[id(value)][1]

    def _listed(self, value: Value) -> list[Filling] | None:
        match value:
            case Choice():
                return self._choice(value)
            case Integers() | Floats():
                return [Filling(number, ((id(value), type(number), number),)) for number in numbers(value)]
            case Same():
                home = self.named.get(value.name)
                known = None if home is None else self.of(home)
                return None if known is None else [Filling(way.value) for way in known]
            case Block():
                return self._block(value)
            case tuple():
                return self._list(value)
        return [Filling(value)]

    def _choice(self, choice: Choice) -> list[Filling] | None:
        ways: list[Filling] = []
        for label, option in zip(labels(choice), choice.options, strict=True):
            inner = self.of(option)
            if inner is None:
                return None
            taken = (id(choice), type(label), label)
            ways += [Filling(way.value, (taken, *way.taken)) for way in inner]
        return ways

    def fields(self, block: Block) -> Iterator[tuple[str, list[Filling]]]:
        """(name, ways to fill it) of each field. What cannot be listed, or differs between copies, is left open."""
        for name, value in block.fields.items():
            copied = block.name == REPEAT and name == BODY and holds_each(value)
            yield name, (None if copied else self.of(value)) or [Filling(OPEN)]

    def _block(self, block: Block) -> list[Filling]:
        """All ways to fill a block; one open filling if there are too many."""
        if not has_holes(block):
            return [Filling(block)]
        ways = _product(ways for _, ways in self.fields(block))
        if ways is None:
            return [Filling(OPEN)]
        return [
            Filling(Block(block.name, dict(zip(block.fields, way.value, strict=True)), block.mark), way.taken)
            for way in ways
        ]

    def _list(self, items: tuple[Value, ...]) -> list[Filling]:
        ways = _product(map(self.of, items))
        if ways is None:
            return [Filling(OPEN)]
        # An option that is a list becomes part of the surrounding list.
        return [Filling(tuple(_spread(items, way.value)), way.taken) for way in ways]


def numbers(hole: Integers | Floats) -> Iterable[int | float]:
    """The numbers of a hole that are tried."""
    if isinstance(hole, Integers):
        every = range(hole.low, hole.high + 1, hole.step)
        return every if len(every) <= RANGE else (hole.low, hole.high)
    return dict.fromkeys(
        (hole.low, (hole.low + hole.high) / 2, hole.high) if hole.step is None else (hole.low, hole.high)
    )


def holds_each(value: Value) -> bool:
    """Whether anything in `value` is filled for each copy of a repeat."""
    return getattr(value, "each", False) is True or any(map(holds_each, children(value)))


def _spread(items: Sequence[Value], filled: Sequence[Any]) -> Iterator[Any]:
    for item, value in zip(items, filled, strict=True):
        if type(value) is tuple and type(item) is not tuple:
            yield from value
        else:
            yield value


def _product(parts: Iterable[list[Filling] | None]) -> list[Filling] | None:
    """All combinations, as tuples; None if a part cannot be listed, or if there are too many."""
    known, count = [], 1
    for part in parts:  # most blocks have too many, and what follows is not listed then
        count *= len(part) if part is not None else FILLINGS + 1
        if part is None or count > FILLINGS:
            return None
        known.append(part)
    return [
        Filling(tuple(way.value for way in ways), tuple(t for way in ways for t in way.taken))
        for ways in itertools.product(*known)
    ]


def unsupported(parts: Sequence[Sequence[Filling]], attempt: Attempt) -> dict[Taken, str]:
    """The values of holes that are in no valid combination, with the error of the first combination."""
    holding: dict[Taken, tuple[int, list[Filling]]] = {}
    for place, part in enumerate(parts):
        for way in part:
            for taken in way.taken:
                holding.setdefault(taken, (place, []))[1].append(way)
    rejected: dict[Taken, str] = {}
    seen: set[Taken] = set()
    for taken, (place, ways) in holding.items():
        if taken in seen:
            continue
        found, reason = first_fit([*parts[:place], ways, *parts[place + 1 :]], attempt)
        if found is None:
            rejected[taken] = reason
        seen.update(other for way in found or () for other in way.taken)
    return rejected


def first_fit(parts: Sequence[Sequence[Filling]], attempt: Attempt) -> tuple[tuple[Filling, ...] | None, str]:
    """(a valid combination, ""), or (None, the first error). The combination is empty if there are too many to try."""
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


def rejections(
    parts: Sequence[Sequence[Filling]], attempt: Attempt, holes: Callable[[], Mapping[int, Hole]]
) -> list[Rejected]:
    """The result of `unsupported` for each hole; `holes` returns the holes by identity."""
    rejected = unsupported(parts, attempt)
    if not rejected:
        return []
    found, by_id = [], holes()
    for key in dict.fromkeys(taken[0] for taken in rejected):
        values = [taken for taken in rejected if taken[0] == key]
        every = dict.fromkeys(taken for part in parts for way in part for taken in way.taken if taken[0] == key)
        fit = [taken[2] for taken in every if taken not in rejected]
        instead = _by_distance(values[0], [*_near(values[0], parts, attempt), *fit])
        found.append(Rejected(by_id[key], tuple(value[2] for value in values), rejected[values[0]], instead))
    return found


def _by_distance(taken: Taken, values: Sequence[Scalar]) -> tuple[Scalar, ...]:
    """`values` in order of their distance from a rejected whole number; other values come last."""

    def distance(value: Any) -> float:
        return abs(value - taken[2]) if taken[1] is int is type(value) else math.inf

    return tuple(sorted(dict.fromkeys(values), key=distance))


def _near(taken: Taken, parts: Sequence[Sequence[Filling]], attempt: Attempt) -> Iterator[int]:
    """The nearest valid numbers below and above a rejected whole number."""
    number: Any = taken[2]
    place = next((i for i, part in enumerate(parts) for way in part if taken in way.taken), 0)
    if taken[1] is not int or not all(way.value == number for way in parts[place] if taken in way.taken):
        return  # a number inside a block is not varied
    for others in (range(number - 1, max(number - NEAR, 0), -1), range(number + 1, number + NEAR)):
        for other in others:
            if first_fit([*parts[:place], [Filling(other)], *parts[place + 1 :]], attempt)[0]:
                yield other
                break
