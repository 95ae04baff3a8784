"""Finding the choices that make a given architecture: matching its canonical tree against the tree with holes.

A canonical tree has its repeats written out and its sequences spliced, so a list of blocks is read as a regular
expression reads text: all ways to match its beginning are carried along together. A state is a place in the list and
the choices made so far; of the choices only those that another place depends on (copies of a repeat, ties) tell two
states apart, so states that differ in nothing else are merged and long lists take linear time.
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

History = tuple  # (earlier history or None, path, choice): a list that grows at its end and shares its beginning

ONCE, COPIED, TIED = range(3)  # how often a hole is met: once, in every copy of a repeat, wherever it is tied to
MANY = 1 << 30


@dataclass(frozen=True)
class State:
    """One way to match what was read. `bound`: the choices that must be the same when their hole is met again."""

    bound: dict[str, tuple[type, Scalar]] = field(default_factory=dict)
    history: History | None = None

    def chosen(self, path: str, choice: Scalar, met: int) -> State | None:
        """This state with one more choice; None when its hole was already filled with something else."""
        history = (self.history, path, choice)
        if met == ONCE:
            return State(self.bound, history)
        kept = (type(choice), choice)
        if path in self.bound:
            return self if self.bound[path] == kept else None
        return State({**self.bound, path: kept}, history)

    def choices(self) -> dict[str, Scalar]:
        found: list[tuple[str, Scalar]] = []
        history = self.history
        while history is not None:
            history, path, choice = history
            found.append((path, choice))
        return dict(reversed(found))


Read = tuple[int, State]  # how many blocks of a list were read, and how


class Spot(NamedTuple):
    """Where a pattern stands: the two paths of `traversal.Walk`, and how often its holes are met."""

    path: str
    each: str
    met: int

    def block(self, block: Block) -> Spot:
        return Spot(block_path(self.path, block), block_path(self.each, block), self.met)

    def field(self, block: Block, name: str) -> Spot:
        return Spot(field_path(self.path, block, name), field_path(self.each, block, name), self.met)

    def item(self, index: int) -> Spot:
        return Spot(f"{self.path}[{index}]", f"{self.each}[{index}]", self.met)

    def option(self, label: Scalar) -> Spot:
        return Spot(option_path(self.path, label), option_path(self.each, label), self.met)

    def body(self, copy: int | None) -> Spot:
        """In one copy of a repeat; None where the copies have nothing of their own."""
        return Spot(body_path(self.path), body_path(self.each, copy), max(self.met, COPIED))

    def own(self) -> Spot:
        """Of what is drawn for this copy alone."""
        return Spot(self.each, self.each, ONCE if self.met == COPIED else self.met)


def locate(outline: Outline, root: Block) -> Iterator[dict[str, Scalar]]:
    """Choices that make the canonical tree `root`, each to be verified; none when no choices can."""
    for state in _Matcher(outline).block(outline.root, root, Spot("", "", ONCE), State()):
        yield state.choices()


class _Matcher:
    def __init__(self, outline: Outline):
        self.outline = outline
        self._lengths: dict[int, int] = {}
        self._smaller: dict[tuple[int, int], tuple[tuple[Value, ...], tuple[Value, ...]]] = {}  # see `_shrunk`

    def block(self, pattern: Block, block: Block, spot: Spot, state: State) -> list[State]:
        """Ways to match a block field by field; `spot` is the block's own."""
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
        """Ways to fill a hole that is no item of a list."""
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
        """Ways to match a whole list."""
        if any(isinstance(item, tuple) for item in items):  # branches, each a list of its own
            states = [state] if len(items) == len(blocks) else []
            for i, (item, branch) in enumerate(zip(items, blocks)):
                states = _distinct(s for state in states for s in self._value(item, branch, spot.item(i), state))
            return states
        ends = self._items(items, blocks, [(0, state)], spot, 0)
        if len(blocks) == 1 and _is_empty_sequence(blocks[0]):  # what is left of a list that stands for nothing
            ends += [(1, state) for _, state in self._items(items, (), [(0, state)], spot, 0)]
        return _distinct(state for end, state in ends if end == len(blocks))

    def _items(
        self, items: tuple[Value, ...], blocks: tuple[Value, ...], reads: list[Read], spot: Spot, after: int
    ) -> list[Read]:
        """Ways to read `items` one after another, going on from each of `reads`; `after` blocks must be left over."""
        left = after + sum(map(self._least, items))
        for i, item in enumerate(items):
            left -= self._least(item)
            longer = [read for start in reads for read in self._item(item, blocks, start, spot.item(i), left)]
            reads = _merged(read for read in longer if read[0] <= len(blocks) - left)
        return reads

    def _item(self, item: Value, blocks: tuple[Value, ...], read: Read, spot: Spot, after: int) -> list[Read]:
        """Ways to read one item of a list, which may stand for several blocks or none."""
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
        """Ways to read a block of a list: as itself, or as what it stands for once it is written out."""
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
            return []  # its copies may differ and would have been written out
        states = self.block(_without(pattern, BODY), block, spot, state)
        inner = spot.body(1)._replace(met=spot.met)
        return _distinct(s for state in states for s in self._whole(_body(pattern), _body(block), inner, state))

    def _written_out(self, item: Block, blocks: tuple[Value, ...], read: Read, spot: Spot, after: int) -> list[Read]:
        """Ways to read the copies of a repeat that does not share its weights, or its body where it has one step."""
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
                if not reads or (reads == before and not differs):  # no way on, or a body that stands for nothing
                    break
        return _merged(found)

    def _numbers(self, value: Value, most: int) -> set[int]:
        """The whole numbers that a field can be filled with; of a range only those up to `most`, and the next."""
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
        """What `blocks` were before their windows grew by `factor`."""
        if factor == 1:
            return blocks
        key = id(blocks), factor
        if key not in self._smaller:  # with `blocks`, which keeps their id theirs
            self._smaller[key] = blocks, tuple(shrunk(block, factor) for block in blocks)
        return self._smaller[key][1]

    def _own_fields(self, item: Block, shared: bool, growth: int, spot: Spot, state: State) -> list[State]:
        """Ways to fill the fields of a repeat, `times` aside, so that it is written out."""
        known = registry.block_type(REPEAT).fields
        pattern = _without(item, "times", BODY)
        defaults = {name: schema.default(known[name]) for name in pattern.fields}
        return self.block(pattern, Block(REPEAT, {**defaults, "share_weights": shared, GROWTH: growth}), spot, state)

    def _least(self, item: Value) -> int:
        """The fewest blocks that an item of a list can stand for."""
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
    """What is quickest to compare comes first: most patterns fail on a plain field."""
    return {Integers: 1, Floats: 1, Choice: 2, Same: 2, Block: 3, tuple: 4}.get(type(value), 0)


def _merged(reads: Iterable[Read]) -> list[Read]:
    found: Sequence[Read] = list(reads)
    if len(found) < 2:
        return list(found)
    return list({(end, frozenset(state.bound.items())): (end, state) for end, state in reversed(found)}.values())


def _distinct(states: Iterable[State]) -> list[State]:
    return [state for _, state in _merged((0, state) for state in states)]
