"""The tree that the language reads and prints: blocks, scalars, lists, and holes.

An architecture is such a tree without holes; a space is the same tree with them. Nodes are immutable; a `mark` says
where a node stood in its file and takes no part in equality.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

Scalar = bool | int | float | str | None


@dataclass(frozen=True)
class Mark:
    """A place in a file; lines and columns count from 1."""

    source: str
    line: int
    column: int = 1


@dataclass(frozen=True)
class Block:
    """A named block with its fields, in the order of its configuration; every default is filled in."""

    name: str
    fields: Mapping[str, Value]
    mark: Mark | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Choice:
    """`!choice [...]`: one of `options`, which never overlap."""

    options: tuple[Value, ...]
    name: str | None = None
    each: bool = False
    mark: Mark | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Integers:
    """`!int {low, high, step, log}`: low, low + step, ... up to high, both ends included."""

    low: int
    high: int
    step: int = 1
    log: bool = False
    name: str | None = None
    each: bool = False
    mark: Mark | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Floats:
    """`!float {low, high, step, log}`: a real interval, or with `step` a grid."""

    low: float
    high: float
    step: float | None = None
    log: bool = False
    name: str | None = None
    each: bool = False
    mark: Mark | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Same:
    """`!same NAME`: whatever the hole of that name was filled with."""

    name: str
    mark: Mark | None = field(default=None, compare=False, repr=False)


Hole = Choice | Integers | Floats
Value: TypeAlias = "Scalar | Block | tuple[Value, ...] | Choice | Integers | Floats | Same"


def has_holes(value: Value) -> bool:
    """Whether anything below `value` is still open."""
    match value:
        case Choice() | Integers() | Floats() | Same():
            return True
        case Block():
            return any(has_holes(child) for child in value.fields.values())
        case tuple():
            return any(has_holes(child) for child in value)
    return False
