"""What a block is made of: one list of parts that its cost, its cost by part and its drawing are all read from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

from searchspace.cost import Cost, Shape, total
from searchspace.registry import Configured

NOTHING = Cost()
PROBE = Shape(length=64)  # long enough for every block that makes a sequence shorter to do so


@dataclass(frozen=True, kw_only=True)
class Part:
    """A block that stands in another, or, without `block`, work of that other block's own.

    name: where it stands (`of.0`, `norm`, `logits`). shape: its input. count: how often it is called one after another.
    shared: the calls use one set of parameters. expected: the calls expected on average, when fewer than `count`.
    again: an earlier part has counted the parameters. recomputed: the backward pass calls it once more, so that nothing
    it keeps is kept. whole: it reads its input as a whole, so nothing of it is kept while the model streams.
    width: of its output, where it is not the model's.
    """

    name: str
    shape: Shape
    block: Configured | None = None
    own: Cost = NOTHING
    count: int = 1
    shared: bool = False
    expected: float | None = None
    again: bool = False
    recomputed: bool = False
    whole: bool = False
    width: int | None = None

    def scaled(self, cost: Cost) -> Cost:
        """The cost of all calls, when one costs `cost`."""
        every = cost.times(self.count, shared=self.shared)
        if self.again:
            every = replace(every, parameters=0, common=frozenset())
        if self.whole:
            every = replace(every, state_bytes=0)
        if self.recomputed:
            again = every.flops - every.choosing_flops
            every = replace(every, activation_bytes=0, training_flops=every.training_flops + again)
        if self.expected is None:
            return every
        return replace(every, expected_flops=round(cost.expected_flops * self.expected))

    def below(self) -> list[Part]:
        """The parts of this part's block; none when it is a leaf."""
        if self.block is None or not issubclass(self.block.type.module, Composite):
            return []
        return self.block.type.module.parts(self.block.config, self.shape)

    def leaves(self) -> Iterator[tuple[str, Cost]]:
        """(path, cost of all calls) of every leaf at or below this part."""
        path = self.name if self.block is None else f"{self.name}.{self.block.type.name}"
        below = self.below()
        for part in below:
            for name, cost in part.leaves():
                yield f"{path}.{name}", self.scaled(cost)
        if not below:
            yield path, self.scaled(self.own if self.block is None else self.block.cost(self.shape))

    def cost(self) -> Cost:
        return total(cost for _, cost in self.leaves())


def too_long(part: Part) -> Iterator[str]:
    """What each block at or below `part` that is made for shorter sequences than it is to read has to say.

    Its configuration says how long they may be, `longest`.
    """
    longest = getattr(part.block.config, "longest", None) if part.block else None
    if part.block and longest is not None and longest < part.shape.length:
        yield f"{part.block.type.name} is made for at most {longest} positions, but would read {part.shape.length}."
    for below in part.below():
        yield from too_long(below)


class Composite:
    """A block or model made of others: it lists its parts, and its cost is their sum."""

    @classmethod
    def parts(cls, config: Any, shape: Shape) -> list[Part]:
        """What one call on an input of `shape` is made of, in the order of the forward pass."""
        raise NotImplementedError

    @classmethod
    def cost(cls, config: Any, shape: Shape) -> Cost:
        return total(part.cost() for part in cls.parts(config, shape))


def in_order(name: str, blocks: Iterable[Configured], shape: Shape, **how: Any) -> list[Part]:
    """One part for each of `blocks`, called `name.0`, `name.1`, ...; `how` goes to every part.

    Each gets the shape that the one before it leaves; only the first reads a longer source.
    """
    parts = []
    for i, block in enumerate(blocks):
        parts.append(Part(name=f"{name}.{i}", shape=shape, block=block, **how))
        shape = after([block], shape)
    return parts


def after(blocks: Iterable[Configured], shape: Shape) -> Shape:
    """The shape that `blocks`, one after the other, leave of `shape`."""
    for block in blocks:
        shape = replace(block.after(shape), source=0)
    return shape


def check_lengths(blocks: Iterable[Configured]) -> None:
    """Raises ValueError where a block that leaves fewer positions than it reads stands within another of `blocks`.

    What is around it, such as a residual, would add up sequences of different lengths.
    """
    for block in blocks:
        if block.type.name == "sequence":
            check_lengths(block.config.of)
            continue
        for inner in configured_below(tuple(getattr(block.config, field.name) for field in fields(block.config))):
            if inner.after(PROBE).length != PROBE.length:
                raise ValueError(
                    f"{inner.type.name} leaves fewer positions than it reads, so it cannot stand within "
                    f"{block.type.name}; put it directly into the body of an encoder, or give it a decoder."
                )


def configured_below(value: Any) -> Iterator[Configured]:
    """Every configured block in `value` (a block, a list, or nothing of the kind), itself first, in order."""
    if isinstance(value, Configured):
        yield value
        for field in fields(value.config):
            yield from configured_below(getattr(value.config, field.name))
    elif isinstance(value, tuple):
        for item in value:
            yield from configured_below(item)
