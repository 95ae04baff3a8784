"""Counts the points of a space exactly and draws points uniformly.

The space is compiled to a circuit. For copies of a repeat, the holes of each copy multiply, and shared holes count
once. A tied hole has one circuit for all its places. If the length of a repeat is tied, one circuit is compiled for
each of its values.
"""

from __future__ import annotations

import itertools
import random
from typing import Any

from searchspace.errors import Problem, SpaceError
from searchspace.language.holes import labels, values
from searchspace.language.traversal import (
    BODY,
    Home,
    Outline,
    block_path,
    body_path,
    children,
    copies,
    field_path,
    option_path,
    options,
    ties,
)
from searchspace.space.circuit import Circuit, Fixed, Leaf, Product, Reached, Sum, Tied, pick
from searchspace.tree import Block, Choice, Floats, Hole, Integers, Same, Scalar, Value

Variant = tuple[Circuit, Any]  # one way to fill a field, and the value of the field


class Counter:
    """The number of points of a space. Raises SpaceError if ties make it too hard to count."""

    def __init__(self, outline: Outline):
        self.outline = outline
        order = sorted(outline.tied, key=lambda name: (len(outline.references(name)), name))
        self.rank = {
            name: rank for rank, name in enumerate(order)
        }  # a hole has a higher rank than the holes it refers to
        lengths = [name for name in order if name in _length_names(outline)]
        self.compiled = [_Compiled(self, fixed) for fixed in self._fixings(lengths)]
        self.weights = {
            (i, reached): ways * compiled.ways(reached)
            for i, compiled in enumerate(self.compiled)
            for reached, ways in compiled.circuit.tally.items()
        }
        self.total = sum(self.weights.values())

    def draw(self, rng: random.Random) -> dict[str, Scalar]:
        """The choices of a point, drawn uniformly from all points. Real numbers are drawn by `holes.draw`."""
        choices: dict[str, Scalar] = {}
        index, reached = pick(self.weights, rng)
        compiled = self.compiled[index]
        compiled.circuit.draw(reached, rng, choices)
        compiled.draw_tied(reached, rng, choices)
        return choices

    def _fixings(self, names: list[str]) -> list[dict[str, tuple[int, Variant]]]:
        """All ways to fix the holes called `names`, as {path: (index of the variant, variant)}."""
        fixings: list[dict[str, tuple[int, Variant]]] = [{}]
        for name in names:
            home = self.outline.homes[name]
            if home.level:
                words = f"times: !same {name} is filled for each copy of a repeat, which cannot be counted"
                raise SpaceError([Problem(words, home.hole.mark, home.path)])
            fixings = [
                {**fixing, home.path: (index, variant)}
                for fixing in fixings
                for index, variant in enumerate(_Compiler(self.outline, fixing).hole_variants(home.hole, home.path))
            ]
        return fixings


class _Compiled:
    """The circuit of a space with fixed tied lengths, and the circuits of its tied holes."""

    def __init__(self, counter: Counter, fixing: dict[str, tuple[int, Variant]]):
        self.fixing = fixing
        compiler = _Compiler(counter.outline, fixing)
        self.circuit = compiler.block(counter.outline.root, "", ("",))
        self.tied = compiler.tied  # by path
        names = {key: counter.rank[name] for key, name in compiler.names.items()}
        self.order = sorted(self.tied, key=lambda key: (-names[key], key))
        self._ways: dict[tuple[Reached, int], int] = {}

    def ways(self, reached: Reached, start: int = 0) -> int:
        """The number of ways to fill the tied holes from `start` on, if `reached` are in use."""
        while start < len(self.order) and self.order[start] not in reached:
            start += 1
        if start == len(self.order):
            # If a fixed hole was not reached, its variants give the same points, so only the first one counts.
            return int(all(index == 0 or path in reached for path, (index, _) in self.fixing.items()))
        if (reached, start) not in self._ways:
            self._ways[reached, start] = sum(self._terms(reached, start).values())
        return self._ways[reached, start]

    def _terms(self, reached: Reached, start: int) -> dict[Reached, int]:
        tally = self.tied[self.order[start]].tally
        return {own: ways * self.ways(reached | own, start + 1) for own, ways in tally.items()}

    def draw_tied(self, reached: Reached, rng: random.Random, choices: dict[str, Scalar]) -> None:
        for start, key in enumerate(self.order):
            if key in reached:
                own = pick(self._terms(reached, start), rng)
                self.tied[key].draw(own, rng, choices)
                reached |= own


class _Compiler:
    """Compiles a space to circuits. `path` is the place of a value, `each` the same place in each of its copies."""

    def __init__(self, outline: Outline, fixing: dict[str, tuple[int, Variant]]):
        self.outline = outline
        self.fixing = fixing
        self.tied: dict[str, Circuit] = {}
        self.names: dict[str, str] = {}  # names of the tied holes, by path

    def block(self, block: Block, place: str, each: tuple[str, ...]) -> Circuit:
        if not self.outline.open(block):
            return Product([])
        if self.outline.differs(block):
            if self.outline.anchored(block):
                return Product([self._copies(block, copy, (copy,)) for copy in each])
            return self._copies(block, place, each)
        return Product(
            self._value(value, field_path(place, name), tuple(field_path(copy, name) for copy in each))
            for name, value in block.fields.items()
        )

    def _copies(self, block: Block, place: str, each: tuple[str, ...]) -> Circuit:
        names = [name for name in block.fields if name != BODY]
        ways: dict[int, list[Circuit]] = {}  # circuits of the other fields of the repeat, by the number of bodies
        for variants in itertools.product(
            *(self._variants(block.fields[name], field_path(place, name)) for name in names)
        ):
            count = copies({name: value for name, (_, value) in zip(names, variants)})
            ways.setdefault(count, []).append(Product(circuit for circuit, _ in variants))
        return Sum(
            Product([Sum(own), self._value(block.fields[BODY], body_path(place), _bodies(each, count))])
            for count, own in ways.items()
        )

    def _value(self, value: Value, path: str, each: tuple[str, ...]) -> Circuit:
        match value:
            case Block():
                return self.block(value, block_path(path, value), tuple(block_path(copy, value) for copy in each))
            case tuple():
                return Product(
                    self._value(item, f"{path}[{index}]", tuple(f"{copy}[{index}]" for copy in each))
                    for index, item in enumerate(value)
                )
            case Choice() | Integers() | Floats():
                if value.each:
                    return Product([self._hole(value, copy, (copy,)) for copy in each])
                return self._hole(value, path, each)
            case Same():
                home = self.outline.homes[value.name]
                return Product([self._tie(value.name, home, key) for key in {home.placed(copy) for copy in each}])
        return Product([])

    def _hole(self, hole: Hole, path: str, each: tuple[str, ...]) -> Circuit:
        if hole.name in self.outline.tied:
            return self._tie(hole.name, self.outline.homes[hole.name], path)
        return self._untied(hole, path, each)

    def _untied(self, hole: Hole, path: str, each: tuple[str, ...]) -> Circuit:
        if not isinstance(hole, Choice) or not any(self.outline.open(option) for option in hole.options):
            return Leaf(path, hole)
        return Sum(
            Product([Fixed(path, label), self._inside(value, path, label, each)])
            for label, (_, value) in zip(labels(hole), options(hole, path))
        )

    def _inside(self, value: Value, path: str, label: Scalar, each: tuple[str, ...]) -> Circuit:
        place, inner = option_path(path, label), tuple(option_path(copy, label) for copy in each)
        return self.block(value, place, inner) if isinstance(value, Block) else self._value(value, place, inner)

    def _tie(self, name: str, home: Home, key: str) -> Circuit:
        if key not in self.tied:
            self.names[key] = name
            fixed = self.fixing.get(key)
            self.tied[key] = fixed[1][0] if fixed else self._untied(home.hole, key, (key,))
        return Tied(key)

    def _variants(self, value: Value, path: str) -> list[Variant]:
        """All ways to fill a field that determines the number of copies, each with its value."""
        match value:
            case Choice() | Integers() | Floats() if value.name in self.outline.tied:
                return [(self._tie(value.name, self.outline.homes[value.name], path), self.fixing[path][1][1])]
            case Choice() | Integers() | Floats():
                return self.hole_variants(value, path)
            case Same():
                home = self.outline.homes[value.name]
                return [(self._tie(value.name, home, home.path), self.fixing[home.path][1][1])]
        return [(self._value(value, path, (path,)), value)]

    def hole_variants(self, hole: Hole, path: str) -> list[Variant]:
        if isinstance(hole, Choice):
            return [
                (Product([Fixed(path, label), circuit]), filled)
                for label, (place, value) in zip(labels(hole), options(hole, path))
                for circuit, filled in self._variants(value, place)
            ]
        known = values(hole)
        return [(Leaf(path, hole), None)] if known is None else [(Fixed(path, value), value) for value in known]


def _bodies(each: tuple[str, ...], count: int) -> tuple[str, ...]:
    return tuple(body_path(copy, index) for copy in each for index in range(1, count + 1))


def _length_names(outline: Outline) -> set[str]:
    """The tied holes that determine the number of copies of a repeat whose copies differ."""
    found: set[str] = set()
    waiting: list[Value] = [outline.root]
    while waiting:
        value = waiting.pop()
        waiting.extend(children(value))
        if isinstance(value, Block) and outline.differs(value):
            for name, own in value.fields.items():
                if name != BODY:
                    found |= {same.name for same in ties(own)} | _named(own)
    for name in list(found):
        found |= outline.references(name)
    return found & outline.tied


def _named(value: Value) -> set[str]:
    own = {value.name} if isinstance(value, Choice | Integers | Floats) and value.name is not None else set()
    return own.union(*(_named(below) for below in children(value)))
