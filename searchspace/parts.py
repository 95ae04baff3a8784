"""The parts of a block. Its cost, its cost by part and its drawing are all computed from one list of parts."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from operator import attrgetter
from typing import Any

from searchspace.cost import Cost, Shape, total
from searchspace.errors import nearest
from searchspace.registry import Configured

NOTHING = Cost()
PROBE = Shape(length=64)  # long enough that every block that shortens sequences shortens it


@dataclass(frozen=True, kw_only=True)
class Part:
    """A block inside another block or, if `block` is None, work that the outer block does itself.

    name: its place (`of.0`, `norm`, `logits`).
    shape: the shape of its input.
    own: the cost of one call, if there is no block.
    count: how often it is called in sequence.
    shared: whether all calls use one set of parameters.
    expected: the mean number of calls, if it can be less than `count`.
    skipped: whether while streaming, too, the calls beyond the expected number do nothing.
    again: whether an earlier part already counted the parameters.
    recomputed: whether the backward pass calls it again, so that it keeps no activations.
    common: the key under which its parameters count once in the model; None if they are its own.
    whole: whether it reads its whole input at once, so that it keeps no state while streaming.
    width: the width of its output; None for the width of the model.
    """

    name: str
    shape: Shape
    block: Configured | None = None
    own: Cost = NOTHING
    count: int = 1
    shared: bool = False
    expected: float | None = None
    skipped: bool = False
    again: bool = False
    common: Hashable = None
    recomputed: bool = False
    whole: bool = False
    width: int | None = None

    @property
    def halts(self) -> bool:
        """Whether it is a block that decides how often it is called."""
        return self.block is not None and self.expected is not None

    def scaled(self, cost: Cost, path: str = "") -> Cost:
        """The cost of all calls if one call costs `cost`; path: of a leaf whose cost it is."""
        if self.common is not None:
            own = cost.parameters - sum(numbers for _, numbers in cost.common)
            cost = replace(cost, common=cost.common | {((self.common, self.name, path), own)})
        every = cost.times(self.count, shared=self.shared)
        if self.again:
            every = replace(every, parameters=0, idle_parameters=0, common=frozenset())
        if self.whole:
            every = replace(every, state_bytes=0, growing_bytes=0)
        if self.recomputed:
            again = every.flops - every.choosing_flops
            every = replace(every, activation_bytes=0, training_flops=every.training_flops + again)
        if self.expected is None:
            return every
        return replace(every, expected_flops=round(cost.expected_flops * self.expected), estimates=1)

    def below(self) -> Sequence[Part]:
        """The parts of this part's block; empty for a leaf."""
        return () if self.block is None else _below(self.block, self.shape)

    def leaves(self) -> Iterator[tuple[str, Cost]]:
        """(path, cost of all calls) of every leaf at or below this part."""
        if self.block is None:
            yield self.name, self.scaled(self.own)
            return
        for path, cost in _leaves(self.block, self.shape):
            yield f"{self.name}.{path}", self.scaled(cost, path)

    def cost(self) -> Cost:
        """The cost of all calls of this part."""
        # A mean number of calls rounds the cost of each leaf, and common parameters have a key for each.
        if self.block is None or self.expected is not None or self.common is not None:
            return total(cost for _, cost in self.leaves())
        return self.scaled((_kept_total if self.block.is_ours else _new_total)(self.block, self.shape))


def _below(block: Configured, shape: Shape) -> Sequence[Part]:
    return (_kept_below if block.is_ours else _new_below)(block, shape)


def _new_below(block: Configured, shape: Shape) -> Sequence[Part]:
    module = block.type.module
    return tuple(module.parts(block.config, shape)) if issubclass(module, Composite) else ()


_kept_below = lru_cache(maxsize=4096)(_new_below)  # the architectures of a search have most of their layers in common


def _leaves(block: Configured, shape: Shape) -> tuple[tuple[str, Cost], ...]:
    """(path, cost) of every leaf of one call of `block`, which is one itself if it has no parts."""
    return (_kept_leaves if block.is_ours else _new_leaves)(block, shape)


def _new_total(block: Configured, shape: Shape) -> Cost:
    """The cost of one call of `block`."""
    below = _below(block, shape)
    return total(part.cost() for part in below) if below else block.cost(shape)


_kept_total = lru_cache(maxsize=4096)(_new_total)


def _new_leaves(block: Configured, shape: Shape) -> tuple[tuple[str, Cost], ...]:
    below = _below(block, shape)
    if not below:
        return ((block.type.name, block.cost(shape)),)
    return tuple((f"{block.type.name}.{path}", cost) for part in below for path, cost in part.leaves())


_kept_leaves = lru_cache(maxsize=4096)(_new_leaves)


def too_long(part: Part) -> str | None:
    """A message for the first block at or below `part` that would read more than its configuration's `longest`
    positions, of its input or of the memory; None if there is none.
    """
    if part.block is None:
        return None
    return (_kept_too_long if part.block.is_ours else _new_too_long)(part.block, part.shape)


def _new_too_long(block: Configured, shape: Shape) -> str | None:
    longest = getattr(block.config, "longest", None)
    if longest is not None:
        over_memory = getattr(block.config, "over", "self") == "memory"
        if longest < (read := shape.memory if over_memory else shape.length):
            return f"{block.type.name} supports at most {longest} positions, but would read {read}."
    return next((found for below in _below(block, shape) if (found := too_long(below))), None)


_kept_too_long = lru_cache(maxsize=4096)(_new_too_long)


class Composite:
    """A block or model that contains others. It lists its parts, and its cost is their sum."""

    @classmethod
    def parts(cls, config: Any, shape: Shape) -> list[Part]:
        """The parts of one call for an input of `shape`, in the order of the forward pass."""
        raise NotImplementedError

    @classmethod
    def cost(cls, config: Any, shape: Shape) -> Cost:
        return total(part.cost() for part in cls.parts(config, shape))


def in_order(name: str, blocks: Iterable[Configured], shape: Shape, **how: Any) -> list[Part]:
    """One part for each of `blocks`, called `name.0`, `name.1`, ...; every part gets the arguments `how`.

    The input of each block is the output of the one before. Only the first block reads a longer source, and the result
    of a norm.
    """
    parts = []
    for i, block in enumerate(blocks):
        parts.append(Part(name=f"{name}.{i}", shape=shape, block=block, **how))
        shape = after([block], shape)
    return parts


def after(blocks: Iterable[Configured], shape: Shape) -> Shape:
    """The shape of the output of `blocks`, applied in order to an input of `shape`."""
    for block in blocks:
        shape = block.after(shape).later
    return shape


def check_lengths(blocks: Iterable[Configured]) -> None:
    """Raises ValueError if a block that shortens its input is inside another of `blocks`.

    The outer block, such as a residual, would have to add sequences of different lengths.
    """
    for block in blocks:
        if block.type.name == "sequence":
            check_lengths(block.config.of)
            continue
        for inner in configured_below(tuple(getattr(block.config, field.name) for field in fields(block.config))):
            if inner.after(PROBE).length != PROBE.length:
                raise ValueError(
                    f"{inner.type.name} shortens its input, so it cannot be inside {block.type.name}. Put it "
                    "directly into the body of an encoder, or give it a decoder."
                )


def configured_below(value: Any) -> Iterator[Configured]:
    """All configured blocks in `value` (a block, a list, or a scalar), depth first; `value` itself comes first."""
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Configured):
            yield value
            waiting += _reversed_values(type(value.config))(value.config)  # type: ignore[arg-type]
        elif isinstance(value, tuple):
            waiting += reversed(value)


def blocks_below(blocks: tuple[Configured, ...]) -> Iterator[Configured]:
    """All blocks in `blocks`, without norms and positions, depth first."""
    return (below for below in configured_below(blocks) if below.type.role == "block")


class Misplaced(ValueError):
    """A block does not fit its place in the model. steps: fields and places in lists that lead from the model to it."""

    def __init__(self, message: str, steps: tuple[str | int, ...]) -> None:
        place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)[1:]
        super().__init__(f"{place}: {message}" if place else message)
        self.message, self.steps = message, steps


def check_lanes(blocks: Mapping[str, tuple[Configured, ...]], given: Iterable[str] = ()) -> set[str]:
    """The lanes that `blocks`, the fields of a model in the order of its pass, write, and those that are `given`.

    Raises Misplaced if a block reads a lane that no earlier block writes.
    """
    written = set(given)
    for name, value in blocks.items():
        for steps, block in placed(value, (name,)):
            module = block.type.module
            for lane in module.reads(block.config) if block.type.role == "block" else ():
                if lane not in written:
                    known = f"Written before it: {', '.join(sorted(written)) or 'nothing'}."
                    message = f"{block.type.name} reads the lane {lane!r}, but no earlier block writes it."
                    raise Misplaced(f"{message}{nearest(lane, written)} {known}", steps)
            written |= {*module.writes(block.config)} if block.type.role == "block" else set()
    return written


def check_uses(blocks: tuple[Configured, ...]) -> None:
    """Raises ValueError if blocks that share their parameters (`use: NAME`) differ in what their places give them."""
    known: dict[str, tuple[Configured, ...]] = {}
    for block in configured_below(blocks):
        if block.type.name == "use" and known.setdefault(block.config.name, block.config.of) != block.config.of:
            raise ValueError(
                f"use: {block.config.name} stands at places that differ, such as an encoder and a decoder, or copies "
                "whose windows grow, so its blocks cannot have one set of parameters."
            )


def placed(value: Any, steps: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], Configured]]:
    """All configured blocks in `value` in the order of the pass, each after the blocks in it, with the way to it."""
    if isinstance(value, Configured):
        for field in fields(value.config):
            yield from placed(getattr(value.config, field.name), (*steps, field.name))
        yield steps, value
    elif isinstance(value, tuple):
        for number, item in enumerate(value):
            yield from placed(item, (*steps, number))


@lru_cache(maxsize=1024)
def _reversed_values(config: type) -> Callable[[Any], tuple[Any, ...]]:
    """Reads the fields of a configuration, the last one first."""
    names = [field.name for field in reversed(fields(config))]
    return attrgetter(*names) if len(names) > 1 else lambda found: tuple(getattr(found, name) for name in names)
