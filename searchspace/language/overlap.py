"""Checks whether two options of a choice can become equal. They would be counted and sampled twice."""

from __future__ import annotations

import json
from functools import lru_cache
from math import gcd
from typing import Any

from searchspace.errors import SpaceError
from searchspace.language import canonical
from searchspace.registry import block_type
from searchspace.tree import Block, Choice, Floats, Integers, Same, Value, has_holes

EFFORT = 200_000  # comparisons for one space; after them, options with holes count as different
EXPANDED = 60_000  # blocks to expand for one space; after them, options are compared as they are written
MAX_NESTING = 50  # the deepest nesting of lists, or sequence of choices between lists, that is compared


def first(options: tuple[Value, ...], search: Search) -> tuple[int, int] | None:
    """The indices of the first two options that overlap, or None. All choices of a space share one `search`.

    The result is exact for options without holes, unless a space is so large that `EXPANDED` ends this. Holes count as
    independent, and options with a `!same` are compared as they are written.
    """
    seen: dict[str, int] = {}
    for index, option in enumerate(options):
        key = search.key(option)
        if key in seen:
            return seen[key], index
        seen[key] = index
    for i in (index for index, option in enumerate(options) if has_holes(option)):
        for j in range(len(options)):
            if search.spent > EFFORT:
                return None
            if i != j and search.values(options[i], options[j]):
                return min(i, j), max(i, j)
    return None


class Search:
    """Compares trees and counts the comparisons."""

    def __init__(self) -> None:
        self.spent = 0
        self.nesting = 0
        self.expanded = 0

    def key(self, option: Value) -> str:
        """Equal for options that are written differently and mean the same."""
        items = option if isinstance(option, tuple) else (option,)
        if has_holes(option) or not items or not all(isinstance(item, Block) for item in items):
            return f"{type(option).__name__} {option!r}"
        if isinstance(option, Block) and block_type(option.name).holds_no_blocks:
            return _alone(option.name, tuple(option.fields.items()))
        if self.expanded > EXPANDED:
            return repr(option)
        try:
            of: Any = canonical.canonical(Block("sequence", {"of": items})).fields["of"]
        except SpaceError:  # too large to expand
            self.expanded += canonical.MAX_BLOCKS
            return repr(option)
        self.expanded += len(of)
        return json.dumps(canonical.encoded(of))

    def values(self, first: Value, second: Value) -> bool:
        """Whether `first` and `second` can become equal."""
        self.spent += 1
        if self.spent > EFFORT or isinstance(first, Same) or isinstance(second, Same):
            return False
        if isinstance(first, Choice):
            return any(self.values(option, second) for option in first.options)
        if isinstance(second, Choice):
            return self.values(second, first)
        if isinstance(first, tuple) or isinstance(second, tuple):
            return self.lists(_as_list(first), _as_list(second))
        if isinstance(first, Block) and isinstance(second, Block):
            return first.name == second.name and all(
                self.values(value, second.fields[name]) for name, value in first.fields.items()
            )
        if isinstance(first, Floats) or isinstance(second, Floats):
            return _floats(first, second)
        if isinstance(first, Integers) or isinstance(second, Integers):
            return _integers(first, second)
        return type(first) is type(second) and first == second

    def lists(self, first: tuple[Value, ...], second: tuple[Value, ...]) -> bool:
        """Whether two lists can become equal. A choice between lists is replaced by each of its lists."""
        if not any(map(_splices, first + second)):
            return len(first) == len(second) and all(map(self.values, first, second))
        self.spent += 1
        if self.spent > EFFORT or self.nesting > MAX_NESTING:
            return False
        self.nesting += 1
        try:
            return self._spliced(first, second)
        finally:
            self.nesting -= 1

    def _spliced(self, first: tuple[Value, ...], second: tuple[Value, ...]) -> bool:
        for mine, other in ((first, second), (second, first)):
            if mine and isinstance(mine[0], Choice):
                return any(self.lists(_as_list(option) + mine[1:], other) for option in mine[0].options)
        if not first or not second:
            return not first and not second
        return self.values(first[0], second[0]) and self.lists(first[1:], second[1:])


def _splices(item: Value) -> bool:
    """Whether `item` can become several items of the list."""
    return isinstance(item, Choice) and any(isinstance(option, tuple) for option in item.options)


def _as_list(value: Value) -> tuple[Value, ...]:
    return value if isinstance(value, tuple) else (value,)


def _integers(first: Any, second: Any) -> bool:
    """Whether two ints or Integers share a number: low1 + a step1 = low2 + b step2 within both ranges."""
    if not all(isinstance(one, Integers) or type(one) is int for one in (first, second)):
        return False
    low1, high1, step1 = _grid(first)
    low2, high2, step2 = _grid(second)
    shared = gcd(step1, step2)
    if (low2 - low1) % shared:
        return False
    period = step1 * step2 // shared
    steps = (low2 - low1) // shared * pow(step1 // shared, -1, step2 // shared) if step2 > shared else 0
    meeting = low1 + steps * step1  # a common number, which may be out of range
    lowest = max(low1, low2)
    return meeting + -((meeting - lowest) // period) * period <= min(high1, high2)


def _grid(value: Any) -> tuple[int, int, int]:
    return (value.low, value.high, value.step) if isinstance(value, Integers) else (value, value, 1)


def _floats(first: Any, second: Any) -> bool:
    """Whether two floats or Floats can share a number; steps are ignored."""
    if not all(isinstance(one, Floats) or type(one) is float for one in (first, second)):
        return False
    low1, high1 = (first.low, first.high) if isinstance(first, Floats) else (first, first)
    low2, high2 = (second.low, second.high) if isinstance(second, Floats) else (second, second)
    return max(low1, low2) <= min(high1, high2)


@lru_cache(maxsize=10_000)
def _alone(name: str, fields: tuple[tuple[str, Value], ...]) -> str:
    """The key of a block that holds no blocks and no holes; spaces have the same ones in many places."""
    alone = Block("sequence", {"of": (Block(name, dict(fields)),)})
    return json.dumps(canonical.encoded(canonical.canonical(alone).fields["of"]))
