"""The tree that the language reads and prints: blocks, scalars, lists and holes.

An architecture is a tree without holes, a space is a tree with holes. Nodes are immutable. A `mark` is the place of a
node in its file; equality ignores it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, wraps
from types import MappingProxyType
from typing import TypeAlias, TypeVar

Scalar = bool | int | float | str | None
Found = TypeVar("Found")


@dataclass(frozen=True)
class Mark:
    """A place in a file. Lines and columns count from 1."""

    source: str
    line: int
    column: int = 1


@dataclass(frozen=True)
class Block:
    """A named block with all its fields, defaults included, in the order of its configuration.

    Its fields cannot be changed, because architectures of a space share their equal blocks.
    """

    name: str
    fields: Mapping[str, Value]
    mark: Mark | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.fields, MappingProxyType):
            self.__dict__["fields"] = MappingProxyType(self.fields)  # the class is frozen

    @cached_property
    def has_holes(self) -> bool:
        """Whether there is a hole in its fields. Kept, because reading a space asks at every level."""
        return any(has_holes(child) for child in self.fields.values())

    def __reduce__(self):  # without what is kept
        return Block, (self.name, dict(self.fields), self.mark)


def kept(find: Callable[[Block], Found]) -> Callable[[Block], Found]:
    """`find`, whose result depends on nothing but the block. It is kept with the block, so it must not be changed.

    The architectures of a search have most of their layers in common, as the same objects.
    """
    key = f"{find.__module__}.{find.__qualname__}"

    @wraps(find)
    def found(block: Block) -> Found:
        known = block.__dict__
        if key not in known:
            known[key] = find(block)
        return known[key]

    return found


@dataclass(frozen=True)
class Choice:
    """`!choice [...]`: one of `options`, which are all different."""

    options: tuple[Value, ...]
    name: str | None = None
    each: bool = False
    mark: Mark | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Integers:
    """`!int {low, high, step, log}`: low, low + step, ... up to high, including both ends."""

    low: int
    high: int
    step: int = 1
    log: bool = False
    name: str | None = None
    each: bool = False
    mark: Mark | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Floats:
    """`!float {low, high, step, log}`: a real interval, or a grid if there is a `step`."""

    low: float
    high: float
    step: float | None = None
    log: bool = False
    name: str | None = None
    each: bool = False
    mark: Mark | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Same:
    """`!same NAME`: the value of the hole called NAME."""

    name: str
    mark: Mark | None = field(default=None, compare=False, repr=False)


Hole = Choice | Integers | Floats
Value: TypeAlias = "Scalar | Block | tuple[Value, ...] | Choice | Integers | Floats | Same"


def has_holes(value: Value) -> bool:
    """Whether there is a hole in `value`."""
    match value:
        case Choice() | Integers() | Floats() | Same():
            return True
        case Block():
            return value.has_holes
        case tuple():
            return any(has_holes(child) for child in value)
    return False
