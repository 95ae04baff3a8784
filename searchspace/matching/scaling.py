"""Any architecture in other widths and depths, as far as its tree allows that.

The width changes with everything that belongs to it: heads keep their width, hidden layers their ratio to the model's
width. The depth changes where layers repeat: the counts of all outermost repeats change by one factor.
"""

from __future__ import annotations

import math
from functools import cache, cached_property
from typing import Any

from searchspace.errors import SpaceError
from searchspace.model.architecture import Architecture
from searchspace.tree import Block, Value

REPEATS = ("repeat", "reversible")
WIDTHS = ("hidden", "alignment")
MULTIPLE = 8  # hidden widths are multiples of this number if those of the model are
MOST_LAYERS = 200


class Scalable:
    """`model` in other sizes. A depth counts how often the smallest whole share of its repeats is there."""

    def __init__(self, model: Architecture):
        self.model = model
        self.root = model.compressed
        self.width: int = self.root.fields["width"]  # type: ignore[assignment]
        counts = list(_counts(self.root))
        self.depth = math.gcd(*counts) if counts else 1
        self.depths = (1, max(self.depth, MOST_LAYERS * self.depth // max(counts))) if counts else (1, 1)

    @cached_property
    def anchors(self) -> tuple[int, ...]:
        """Three widths that fit the model, or its own width alone if no other fits."""
        fitting = [width for width in (self.width, 2 * self.width, 3 * self.width) if self._fits(width)]
        return tuple(fitting) if len(fitting) == 3 else (self.width,)

    def _fits(self, width: int) -> bool:
        try:
            _ = self.build(width, 1).configured
        except SpaceError:
            return False
        return True

    def usual_depth(self, width: int) -> float:
        """The model's own proportions: the depth grows with the square root of the width."""
        return self.depth * math.sqrt(width / self.width)

    def oddness(self, width: int) -> float:
        """How far the heads of `width` are from the model's own, in the block where they are furthest."""
        return max((_head_oddness(self.width, heads, width) for heads in self._heads), default=0.0) / 2

    @cached_property
    def _heads(self) -> set[int]:
        """The numbers of heads in the model."""
        return _heads(self.root)

    def build(self, width: int, depth: int) -> Architecture:
        """The model of this width and depth. Raises SpaceError if they do not fit its blocks."""
        if (width, depth) == (self.width, self.depth):
            return self.model
        return Architecture.from_block(self._block(self.root, width, depth))

    def _block(self, block: Block, width: int, depth: int) -> Block:
        """`depth` 0 leaves the repeats as they are: they are inside one that was scaled."""
        repeats = block.name in REPEATS and depth > 0
        fields: dict[str, Any] = {
            name: self._value(value, width, 0 if repeats else depth) for name, value in block.fields.items()
        }
        if repeats and fields["times"] > 1:
            fields["times"] = fields["times"] * depth // self.depth
        if block is self.root:
            fields["width"] = width
        if width != self.width:
            fields |= self._sizes(block, width)
        return Block(block.name, fields)

    def _value(self, value: Value, width: int, depth: int) -> Any:
        if isinstance(value, tuple):
            return tuple(self._value(item, width, depth) for item in value)
        return self._block(value, width, depth) if isinstance(value, Block) else value

    def _sizes(self, block: Block, width: int) -> dict[str, int]:
        """The fields of `block` that belong to the width."""
        fields: dict[str, Any] = dict(block.fields)
        changed: dict[str, int] = {}
        for name in WIDTHS:
            if fields.get(name):
                multiple = MULTIPLE if fields[name] % MULTIPLE == 0 else 1
                changed[name] = max(1, round(fields[name] * width / self.width / multiple)) * multiple
        if heads := fields.get("heads"):
            changed["heads"] = _heads_of(self.width, heads, width)
            for name in ("key_value_heads", "dilated_heads"):
                if fields.get(name):
                    changed[name] = _share(fields[name] / heads, changed["heads"])
        return changed


def _counts(value: Value) -> Any:
    """How often each outermost repeat of `value` applies its blocks."""
    if isinstance(value, tuple):
        for item in value:
            yield from _counts(item)
    elif isinstance(value, Block):
        times = value.fields.get("times")
        if value.name in REPEATS and isinstance(times, int):
            if times > 1:
                yield times
            return
        for field in value.fields.values():
            yield from _counts(field)


def _heads(value: Value) -> set[int]:
    """The numbers of heads in `value`."""
    if isinstance(value, tuple):
        return set().union(*map(_heads, value))
    if not isinstance(value, Block):
        return set()
    heads = value.fields.get("heads")
    return _heads(tuple(value.fields.values())) | ({heads} if isinstance(heads, int) else set())


def _heads_of(old: int, heads: int, width: int) -> int:
    """The number of heads of `width` that keeps the width of a head best; even widths of heads stay even."""
    return heads_near(width, width * heads / old, even=old % (2 * heads) == 0)


def _head_oddness(old: int, heads: int, width: int) -> float:
    return abs(math.log(_heads_of(old, heads, width) * old / width / heads))


@cache
def heads_near(width: int, wanted: float, *, even: bool) -> int:
    """The number of heads that divides `width` and is nearest to `wanted`, with an even width of a head if possible."""
    whole = width // 2 if even and width % 2 == 0 else width
    small = [count for count in range(1, math.isqrt(whole) + 1) if whole % count == 0]
    return min({*small, *(whole // count for count in small)}, key=lambda count: (abs(math.log(count / wanted)), count))


def _share(share: float, heads: int) -> int:
    """The divisor of `heads` that is nearest to this share of them."""
    choices = [count for count in range(1, heads + 1) if heads % count == 0]
    return min(choices, key=lambda count: (abs(math.log(count / heads / share)), count))
