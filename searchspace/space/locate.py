"""Finds the choices that give an architecture, by matching its canonical tree with the tree with holes.

In a canonical tree, repeats are expanded and sequences are spliced. So a list of blocks is matched as a regular
expression matches text: all ways to match the beginning are followed together. A state is a place in the list and the
choices so far. Only choices that another place depends on (copies of a repeat, ties) distinguish two states. States
that are otherwise equal are merged, so long lists take linear time.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from searchspace import registry
from searchspace.language import schema
from searchspace.language.holes import admits, labels, same_scalar
from searchspace.language.traversal import BODY, REPEAT, Outline, block_path, body_path, field_path, option_path
from searchspace.tree import Block, Choice, Floats, Hole, Integers, Same, Scalar, Value
from searchspace.window_growth import GROWTH, largest_window, shrunk

History = tuple  # (earlier history or None, path, choice): a linked list, so states share their beginning

ONCE, COPIED, TIED = range(3)  # how often a hole is met: once, in each copy of a repeat, or at each of its ties
MANY = 1 << 30


@dataclass(frozen=True)
class State:
    """One way to match the blocks so far. `bound`: choices that must be equal if their hole is met again."""

    bound: dict[str, tuple[type, Scalar]] = field(default_factory=dict)
    history: History | None = None

    def chosen(self, path: str, choice: Scalar, met: int) -> State | None:
        """This state with one more choice; None if its hole already has another value."""
        history = (self.history, path, choice)
        if met == ONCE:
            return State(self.bound, history)
        kept = (type(choice), choice)
        if path in self.bound:
            return self if self.bound[path] == kept else None
        return State({**self.bound, path: kept}, history)

    def choices(self) -> dict[str, Scalar]:
        """All choices by path, in order."""
        found: list[tuple[str, Scalar]] = []
        history = self.history
        while history is not None:
            history, path, choice = history
            found.append((path, choice))
        return dict(reversed(found))


Read = tuple[int, State]  # the number of blocks of a list that were matched, and the state


class Spot(NamedTuple):
    """The place of a pattern: the two paths of `traversal.Walk`, and how often its holes are met."""

    path: str
    each: str
    met: int

    def block(self, block: Block) -> Spot:
        return Spot(block_path(self.path, block), block_path(self.each, block), self.met)

    def field(self, block: Block, name: str) -> Spot:
        return Spot(field_path(self.path, name), field_path(self.each, name), self.met)

    def item(self, index: int) -> Spot:
        return Spot(f"{self.path}[{index}]", f"{self.each}[{index}]", self.met)

    def option(self, label: Scalar) -> Spot:
        return Spot(option_path(self.path, label), option_path(self.each, label), self.met)

    def body(self, copy: int | None) -> Spot:
        """The body in one copy of a repeat; None if all copies are equal."""
        return Spot(body_path(self.path), body_path(self.each, copy), max(self.met, COPIED))

    def own(self) -> Spot:
        """The place of a hole that is filled for this copy only."""
        return Spot(self.each, self.each, ONCE if self.met == COPIED else self.met)


def locate(outline: Outline, root: Block) -> Iterator[dict[str, Scalar]]:
    """Candidate choices that may give the canonical tree `root`. The caller verifies each; there may be none."""
    for state in _Matcher(outline).block(outline.root, root, Spot("", "", ONCE), State()):
        yield state.choices()


class _Matcher:
    def __init__(self, outline: Outline):
        self.outline = outline
        self._lengths: dict[int, int] = {}
        self._smaller: dict[tuple[int, int], tuple[tuple[Value, ...], tuple[Value, ...]]] = {}  # see `_shrunk`

    def block(self, pattern: Block, block: Block, spot: Spot, state: State) -> list[State]:
        """All ways to match a block field by field; `spot` is the place of the block."""
        if pattern.name != block.name:
            return []
        states = [state]
        for name in sorted(pattern.fields, key=lambda name: _weight(pattern.fields[name])):
            value, found = pattern.fields[name], block.fields[name]
            states = _distinct(
                s for state in states for s in self._value(value, found, spot.field(pattern, name), state)
            )
        return states

    def _value(self, pattern: Value, value: Value, spot: Spot, state: State) -> list[State]:
        match pattern:
            case Block():
                matches = isinstance(value, Block)
                return self.block(pattern, value, spot.block(pattern), state) if matches else []  # type: ignore
            case tuple():
                return self._whole(pattern, value, spot, state) if isinstance(value, tuple) else []
            case Choice() | Integers() | Floats():
                return self._hole(pattern, value, self._drawn(pattern, spot), state)
            case Same():
                return self._hole(*self._home(pattern, value, spot), state)
        return [state] if same_scalar(pattern, value) else []

    def _hole(self, hole: Hole, value: Value, spot: Spot, state: State) -> list[State]:
        """All ways to fill a hole that is not an item of a list."""
        if not isinstance(hole, Choice):
            if not isinstance(value, int | float) or not admits(hole, value):
                return []
            bound = state.chosen(spot.path, value, spot.met)
            return [bound] if bound else []
        found: list[State] = []
        for label, option in zip(labels(hole), hole.options):
            inner, bound = spot.option(label), state.chosen(spot.path, label, spot.met)
            if bound is None:
                continue
            if isinstance(option, Block):
                found += self.block(option, value, inner, bound) if isinstance(value, Block) else []
            else:
                found += self._value(option, value, inner, bound)
        return found

    def _drawn(self, hole: Hole, spot: Spot) -> Spot:
        spot = spot.own() if hole.each else spot
        return spot._replace(met=TIED) if hole.name in self.outline.tied else spot

    def _home(self, same: Same, value: Value, spot: Spot) -> tuple[Hole, Value, Spot]:
        home = self.outline.homes[same.name]
        place = home.placed(spot.each)
        return home.hole, value, Spot(place, place, TIED)

    def _whole(self, items: tuple[Value, ...], blocks: tuple[Value, ...], spot: Spot, state: State) -> list[State]:
        """All ways to match a whole list."""
        if any(isinstance(item, tuple) for item in items):  # branches, each of them a list
            states = [state] if len(items) == len(blocks) else []
            for i, (item, branch) in enumerate(zip(items, blocks)):
                states = _distinct(s for state in states for s in self._value(item, branch, spot.item(i), state))
            return states
        ends = self._items(items, blocks, [(0, state)], spot, 0)
        if len(blocks) == 1 and _is_empty_sequence(blocks[0]):  # the canonical form of a list without blocks
            ends += [(1, state) for _, state in self._items(items, (), [(0, state)], spot, 0)]
        return _distinct(state for end, state in ends if end == len(blocks))

    def _items(
        self, items: tuple[Value, ...], blocks: tuple[Value, ...], reads: list[Read], spot: Spot, after: int
    ) -> list[Read]:
        """All ways to match `items` in order, starting from each of `reads`, so that at least `after` blocks remain."""
        left = after + sum(map(self._least, items))
        for i, item in enumerate(items):
            left -= self._least(item)
            longer = [read for start in reads for read in self._item(item, blocks, start, spot.item(i), left)]
            reads = _merged(read for read in longer if read[0] <= len(blocks) - left)
        return reads

    def _item(self, item: Value, blocks: tuple[Value, ...], read: Read, spot: Spot, after: int) -> list[Read]:
        """All ways to match one item of a list, which can be several blocks or none."""
        match item:
            case Block():
                return self._block_item(item, blocks, read, spot.block(item), after)
            case Choice():
                return self._choice_item(item, blocks, read, self._drawn(item, spot), after)
            case Same():
                hole, _, place = self._home(item, None, spot)
                assert isinstance(hole, Choice)
                return self._choice_item(hole, blocks, read, place, after)
        return []

    def _choice_item(self, hole: Choice, blocks: tuple[Value, ...], read: Read, spot: Spot, after: int) -> list[Read]:
        start, state = read
        found: list[Read] = []
        for label, option in zip(labels(hole), hole.options):
            inner, bound = spot.option(label), state.chosen(spot.path, label, spot.met)
            if bound is None:
                continue
            if isinstance(option, Block):
                found += self._block_item(option, blocks, (start, bound), inner, after)
            elif isinstance(option, tuple):
                found += self._items(option, blocks, [(start, bound)], inner, after)
            else:
                found += self._item(option, blocks, (start, bound), inner, after)
        return found

    def _block_item(self, item: Block, blocks: tuple[Value, ...], read: Read, spot: Spot, after: int) -> list[Read]:
        """All ways to match a block in a list: as itself, or expanded."""
        start, state = read
        if self.outline.differs(item) and self.outline.anchored(item):
            spot = spot.own()
        found: list[Read] = []
        if start < len(blocks) and isinstance(block := blocks[start], Block) and block.name == item.name:
            found += [(start + 1, s) for s in self._kept(item, block, spot, state)]
        if item.name == "sequence":
            found += self._items(_body(item), blocks, [read], spot.field(item, BODY), after)
        elif item.name == REPEAT:
            found += self._written_out(item, blocks, read, spot, after)
        return found

    def _kept(self, pattern: Block, block: Block, spot: Spot, state: State) -> list[State]:
        if not self.outline.differs(pattern):
            return self.block(pattern, block, spot, state)
        if block.fields["share_weights"] is not True:
            return []  # its copies differ, so the canonical tree has them expanded
        states = self.block(_without(pattern, BODY), block, spot, state)
        inner = spot.body(1)._replace(met=spot.met)
        return _distinct(s for state in states for s in self._whole(_body(pattern), _body(block), inner, state))

    def _written_out(self, item: Block, blocks: tuple[Value, ...], read: Read, spot: Spot, after: int) -> list[Read]:
        """All ways to match the copies of a repeat without shared weights, or the body of a repeat with one step."""
        differs = self.outline.differs(item)
        longest = self.outline.highest(item.fields["times"])
        found: list[Read] = []
        growths = self._numbers(item.fields[GROWTH], largest_window(blocks))
        for shared, growth in itertools.product((False, True), sorted(growths)):
            reads = [(read[0], state) for state in self._own_fields(item, shared, growth, spot, read[1])]
            for copy in range(1, (1 if shared else longest) + 1):
                before = reads
                body = spot.body(copy if differs else None)
                reads = self._items(_body(item), self._shrunk(blocks, growth ** (copy - 1)), reads, body, after)
                for end, state in reads:
                    times = self._value(item.fields["times"], copy, spot.field(item, "times"), state)
                    found += [(end, s) for s in times]
                if not reads or (reads == before and not differs):  # nothing matches, or the body is empty
                    break
        return _merged(found)

    def _numbers(self, value: Value, most: int) -> set[int]:
        """The whole numbers that a field can have; of a range only those up to `most`, and the next one."""
        match value:
            case Same():
                return self._numbers(self.outline.homes[value.name].hole, most)
            case Choice():
                return {number for option in value.options for number in self._numbers(option, most)}
            case Integers():
                within = range(value.low, value.high + 1, value.step)
                return set(within[: bisect_right(within, most) + 1])
        return {value} if isinstance(value, int) else set()

    def _shrunk(self, blocks: tuple[Value, ...], factor: int) -> tuple[Value, ...]:
        """`blocks` before their windows grew by `factor`."""
        if factor == 1:
            return blocks
        key = id(blocks), factor
        if key not in self._smaller:  # together with `blocks`, so that the id is not reused
            self._smaller[key] = blocks, tuple(shrunk(block, factor) for block in blocks)
        return self._smaller[key][1]

    def _own_fields(self, item: Block, shared: bool, growth: int, spot: Spot, state: State) -> list[State]:
        """All ways to fill the fields of a repeat except `times`, so that it is expanded."""
        known = registry.block_type(REPEAT).fields
        pattern = _without(item, "times", BODY)
        defaults = {name: schema.default(known[name]) for name in pattern.fields}
        return self.block(pattern, Block(REPEAT, {**defaults, "share_weights": shared, GROWTH: growth}), spot, state)

    def _least(self, item: Value) -> int:
        """The smallest number of blocks that an item of a list can be."""
        if id(item) not in self._lengths:
            self._lengths[id(item)] = self._shortest(item)
        return self._lengths[id(item)]

    def _shortest(self, item: Value) -> int:
        match item:
            case Choice():
                return min(map(self._least, item.options))
            case tuple():
                return sum(map(self._least, item))
            case Same():
                return self._least(self.outline.homes[item.name].hole)
            case Block(name="sequence" | "repeat"):
                return min(self._least(_body(item)), 1)
        return 1


def _body(block: Block) -> tuple[Value, ...]:
    body = block.fields[BODY]
    assert isinstance(body, tuple)
    return body


def _without(block: Block, *names: str) -> Block:
    return Block(block.name, {name: value for name, value in block.fields.items() if name not in names})


def _is_empty_sequence(value: Value) -> bool:
    return isinstance(value, Block) and value.name == "sequence" and not value.fields[BODY]


def _weight(value: Value) -> int:
    """The order of comparison: fields that are fast to compare come first, because most patterns fail there."""
    return {Integers: 1, Floats: 1, Choice: 2, Same: 2, Block: 3, tuple: 4}.get(type(value), 0)


def _merged(reads: Iterable[Read]) -> list[Read]:
    found: Sequence[Read] = list(reads)
    if len(found) < 2:
        return list(found)
    return list({(end, frozenset(state.bound.items())): (end, state) for end, state in reversed(found)}.values())


def _distinct(states: Iterable[State]) -> list[State]:
    return [state for _, state in _merged((0, state) for state in states)]
