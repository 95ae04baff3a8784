"""Windows that grow with depth. In a `repeat` with `window_growth: g`, copy i (from 0) multiplies every window by g^i.

Beltagy et al. 2020, "Longformer", https://arxiv.org/abs/2004.05150, section 4.1, uses small windows in the lower layers
of a language model and larger windows in the higher layers. A window is the whole number in a field `window` of any
block inside the repeat. Nested repeats multiply their growths. Growth without a window inside the repeat is an error.
In a space it is an error only if no option has a window.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from searchspace.errors import Problem, SpaceError
from searchspace.registry import Configured
from searchspace.tree import Block, Choice, Same, Value

REPEAT = "repeat"
GROWTH = "window_growth"
WINDOW = "window"
LARGEST = 2**31  # largest factor between the first and the last copy
NO_WINDOW = f"{GROWTH} multiplies the field {WINDOW!r} of the blocks inside, but none of them has it."
NOTHING = Block("", {})  # not equal to any real block


def factors(growth: int, times: int) -> Iterator[int]:
    """The factors for the windows of each of `times` copies. Raises SpaceError if they exceed `LARGEST`."""
    if growth > 1 and (times > LARGEST.bit_length() or growth ** (times - 1) > LARGEST):
        raise SpaceError(f"{GROWTH}={growth} over {times} copies makes windows longer than any sequence; lower one.")
    return (growth**copy for copy in range(times))


def grown(value: Any, factor: int) -> Any:
    """`value`, a tree without holes or configured blocks, with every window multiplied by `factor`."""
    if factor == 1:
        return value
    if isinstance(value, tuple):
        return tuple(grown(item, factor) for item in value)
    if isinstance(value, Block):
        return Block(value.name, _changed(value.fields, factor), value.mark)
    if isinstance(value, Configured):
        values = {field.name: getattr(value.config, field.name) for field in dataclasses.fields(value.config)}
        return Configured(value.type, dataclasses.replace(value.config, **_changed(values, factor)))
    return value


def _changed(fields: Any, factor: int) -> dict[str, Any]:
    return {name: value * factor if is_window(name, value) else grown(value, factor) for name, value in fields.items()}


def shrunk(value: Value, factor: int) -> Value:
    """The inverse of `grown`. A block with a window that is not a multiple of `factor` becomes `NOTHING`."""
    if isinstance(value, tuple):
        return tuple(shrunk(item, factor) for item in value)
    if not isinstance(value, Block):
        return value
    fields: dict[str, Value] = {}
    for name, inner in value.fields.items():
        if isinstance(inner, int) and is_window(name, inner):
            if inner % factor:
                return NOTHING
            fields[name] = inner // factor
        else:
            fields[name] = shrunk(inner, factor)
    return Block(value.name, fields, value.mark)


def is_window(name: str, value: Any) -> bool:
    """Whether `value` in the field `name` is a window."""
    return name == WINDOW and type(value) is int


def largest_window(value: Value) -> int:
    """The largest window in `value`, or 0 if there is none."""
    if isinstance(value, tuple):
        return max(map(largest_window, value), default=0)
    if not isinstance(value, Block):
        return 0
    return max(
        (inner if isinstance(inner, int) and is_window(name, inner) else largest_window(inner))
        for name, inner in [("", 0), *value.fields.items()]
    )


def may_have_window(value: Any) -> bool:
    """Whether `value` can be filled so that it has a window; a `!same` counts as having one."""
    match value:
        case Same():
            return True
        case Choice():
            return any(map(may_have_window, value.options))
        case tuple():
            return any(map(may_have_window, value))
        case Block():
            return any(_is_or_has_window(name, inner) for name, inner in value.fields.items())
        case Configured():
            fields = dataclasses.fields(value.config)
            return any(_is_or_has_window(field.name, getattr(value.config, field.name)) for field in fields)
    return False


def _is_or_has_window(name: str, value: Any) -> bool:
    return value is not None if name == WINDOW else may_have_window(value)


def grows_nothing(block: Block) -> bool:
    """Whether `block` is a repeat with window growth that cannot contain a window. Its fields must be complete."""
    return block.name == REPEAT and block.fields[GROWTH] != 1 and not may_have_window(block.fields["of"])


def problems(value: Value) -> list[Problem]:
    """One problem for each repeat in `value` with window growth but without a window."""
    if isinstance(value, Block):
        found = [Problem(NO_WINDOW, value.mark)] if grows_nothing(value) else []
        return found + problems(tuple(value.fields.values()))
    below = value.options if isinstance(value, Choice) else value if isinstance(value, tuple) else ()
    return [problem for inner in below for problem in problems(inner)]
