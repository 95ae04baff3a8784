"""The differences between two spaces, and whether the new space contains every point of the old one.

The trees are compared place by place. So the answer to the last question is cautious: a larger space in another form
is not recognised as larger.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from typing import NamedTuple

from searchspace.language.constraints import Constraint
from searchspace.language.holes import admits, describe, labels, plain, values
from searchspace.language.traversal import REPEAT, block_path, field_path, option_path
from searchspace.space.space import Space
from searchspace.tree import Block, Choice, Floats, Hole, Integers, Same, Value

Numbers = (Integers, Floats)
LISTED = 10_000  # the longest list of numbers that is compared number by number


@dataclass(frozen=True)
class SpaceDiff:
    """Lines that begin with a path. `larger`: whether the new space has every feasible point of the old one."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    renamed: tuple[str, ...]
    larger: bool


class _Place(NamedTuple):
    """A place in the old and in the new space."""

    old: str
    new: str
    repeated: bool = False  # inside a repeat, where `each` matters

    def block(self, block: Block) -> _Place:
        return _Place(block_path(self.old, block), block_path(self.new, block), self.repeated)

    def field(self, block: Block, name: str) -> _Place:
        return _Place(field_path(self.old, name), field_path(self.new, name), self.repeated)

    def item(self, old: int, new: int) -> _Place:
        return _Place(f"{self.old}[{old}]", f"{self.new}[{new}]", self.repeated)

    def option(self, old: object, new: object) -> _Place:
        return _Place(option_path(self.old, old), option_path(self.new, new), self.repeated)


@dataclass
class _Comparison:
    """Compares values. Each method returns whether the new value covers the old one, and records differences."""

    old: Space
    new: Space
    names: dict[str, str]  # old name of a hole -> new name of the hole at the same path
    added: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    renamed: list[str] = field(default_factory=list)

    def covers(self, old: Value, new: Value) -> bool:
        """As `value`, without recording differences."""
        return replace(self, added=[], removed=[], renamed=[]).value(old, new, _Place("", ""))

    def value(self, old: Value, new: Value, place: _Place) -> bool:
        """Whether `new` can be everything that `old` can be."""
        if isinstance(old, Same) or isinstance(new, Same):
            return self._tie(old, new, place)
        if isinstance(old, Block) and isinstance(new, Block) and old.name == new.name:
            return self._fields(old, new, place)
        if isinstance(old, tuple) and isinstance(new, tuple):
            return self._items(old, new, place)
        if isinstance(old, Choice | Integers | Floats) and isinstance(new, Choice | Integers | Floats):
            return self._holes(old, new, place)
        if isinstance(new, Choice | Integers | Floats):
            return self._opened(old, new, place)
        if isinstance(old, Choice | Integers | Floats):
            self.removed.append(f"{place.old}: {_shown(old)} is now {_shown(new)}")
            known = values(old)
            return known is not None and len(known) == 1 and all(self.covers(way, new) for way in _ways(old))
        if type(old) is type(new) and old == new:
            return True
        self.removed.append(f"{place.old or 'kind'}: {_shown(old)}")
        self.added.append(f"{place.new or 'kind'}: {_shown(new)}")
        return False

    def _fields(self, old: Block, new: Block, place: _Place) -> bool:
        covered = True
        for name, value in old.fields.items():
            inner = place.field(old, name)
            if old.name == REPEAT and name == "of":
                inner = inner._replace(repeated=True)
            covered &= self.value(value, new.fields[name], inner)
        return covered

    def _items(self, old: tuple[Value, ...], new: tuple[Value, ...], place: _Place) -> bool:
        if len(old) == len(new):
            pairs = [self._item(a, b, place.item(i, i)) for i, (a, b) in enumerate(zip(old, new))]
            return all(pairs)
        covered = True
        before, after = [_kind(item) for item in old], [_kind(item) for item in new]
        for tag, a, a_end, b, b_end in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
            paired = a_end - a if tag in ("equal", "replace") and a_end - a == b_end - b else 0
            for k in range(paired):
                covered &= self._item(old[a + k], new[b + k], place.item(a + k, b + k))
            for i in range(a + paired, a_end):
                covered = False
                self.removed.append(f"{place.old}[{i}]: {_shown(old[i])}")
            for i in range(b + paired, b_end):
                covered &= any(option == () for option in _ways(new[i]))  # the new item may be left out
                self.added.append(f"{place.new}[{i}]: {_shown(new[i])}")
        return covered

    def _item(self, old: Value, new: Value, place: _Place) -> bool:
        if isinstance(old, Block) and isinstance(new, Block) and old.name == new.name:
            place = place.block(old)
        return self.value(old, new, place)

    def _tie(self, old: Value, new: Value, place: _Place) -> bool:
        if isinstance(old, Same) and isinstance(new, Same):
            if self.names.get(old.name, old.name) == new.name:
                return True
            self.removed.append(f"{place.old}: {_shown(old)} is now {_shown(new)}")
            return False
        if isinstance(old, Same):
            self.added.append(f"{place.new}: {_shown(new)}, no longer tied to {old.name!r}")
            return self.covers(self.old.outline.homes[old.name].hole, new)
        self.removed.append(f"{place.old}: {_shown(old)} is now {_shown(new)}")
        return False

    def _opened(self, old: Value, new: Hole, place: _Place) -> bool:
        line = f"{place.new}: {_shown(old)} is now {_shown(new)}"
        for label, way in zip(labels(new), _ways(new)) if isinstance(new, Choice) else ():
            if self.covers(old, way):
                self.added.append(line)
                before = block_path(place.old, old) if isinstance(old, Block) else place.old
                return self.value(old, way, place._replace(old=before, new=option_path(place.new, label)))
        covered = _admits(new, old)
        (self.added if covered else self.removed).append(line)
        return covered

    def _holes(self, old: Hole, new: Hole, place: _Place) -> bool:
        if old.name != new.name and old.name is not None:
            self.renamed.append(f"{place.new}: {old.name!r} is now called {new.name!r}")
        if place.old != place.new:
            self.renamed.append(f"{place.old} is now {place.new}")
        if isinstance(old, Choice) and isinstance(new, Choice):
            covered = self._options(old, new, place)
        else:
            covered, covers_back = _covers_numbers(old, new), _covers_numbers(new, old)
            line = f"{place.new}: {describe(old)} is now {describe(new)}"
            self.added += [line] if not covers_back else []
            self.removed += [line] if not covered else []
        return self._each(old, new, place) and covered

    def _each(self, old: Hole, new: Hole, place: _Place) -> bool:
        if old.each == new.each or not place.repeated:
            return True
        if new.each:
            self.added.append(f"{place.new}: filled for each copy")
        else:
            self.removed.append(f"{place.old}: filled for each copy")
        return new.each

    def _options(self, old: Choice, new: Choice, place: _Place) -> bool:
        olds = {_key(label): (label, value) for label, value in zip(labels(old), old.options)}
        news = {_key(label): (label, value) for label, value in zip(labels(new), new.options)}
        covered = True
        for key in [key for key in olds if key in news]:
            (label, value), (new_label, new_value) = olds[key], news[key]
            covered &= self.value(value, new_value, place.option(label, new_label))
        for key in [key for key in olds if key not in news]:
            label, value = olds[key]
            covered = False
            self.removed.append(f"{place.old}: option {plain(label)}")
        for key in [key for key in news if key not in olds]:
            self.added.append(f"{place.new}: option {plain(news[key][0])}")
        return covered


def diff(old: Space, new: Space) -> SpaceDiff:
    """The differences between `old` and `new`, including constraints."""
    paths = {home.path: name for name, home in new.outline.homes.items()}
    names = {name: paths[home.path] for name, home in old.outline.homes.items() if home.path in paths}
    comparison = _Comparison(old, new, names)
    larger = comparison.value(old.root, new.root, _Place("", ""))
    larger &= _compare_constraints(old.constraints, new.constraints, comparison)
    return SpaceDiff(tuple(comparison.added), tuple(comparison.removed), tuple(comparison.renamed), larger)


def _compare_constraints(old: Sequence[Constraint], new: Sequence[Constraint], comparison: _Comparison) -> bool:
    covered = True
    olds, news = ({constraint.quantity: constraint for constraint in both} for both in (old, new))
    for quantity in {**olds, **news}:
        before, after = olds.get(quantity), news.get(quantity)
        for word, name, sign in (("min", "low", -1), ("max", "high", 1)):
            low = getattr(before, name, None)
            high = getattr(after, name, None)
            if low == high:
                continue
            looser = high is None or (low is not None and (high - low) * sign > 0)
            covered &= looser
            line = f"constraints.{quantity}.{word}: {_bound(low)} is now {_bound(high)}"
            (comparison.added if looser else comparison.removed).append(line)
    return covered


def _bound(bound: float | None) -> str:
    return "no bound" if bound is None else f"{bound:,}"


def _covers_numbers(old: Hole, new: Hole) -> bool:
    """Whether `new` has every number of `old`. At least one of the holes is not a choice."""
    known = values(old)
    if known is None:
        assert isinstance(old, Floats)
        return isinstance(new, Floats) and values(new) is None and new.low <= old.low and old.high <= new.high
    if isinstance(old, Integers) and isinstance(new, Integers):
        theirs, mine = range(new.low, new.high + 1, new.step), range(old.low, old.high + 1, old.step)
        return mine[0] in theirs and mine[-1] in theirs and (len(mine) == 1 or mine[1] in theirs)
    ways = old.options if isinstance(old, Choice) else known
    return len(ways) <= LISTED and all(_admits(new, way) for way in ways)


def _admits(hole: Hole, value: Value) -> bool:
    if isinstance(value, Integers | Floats):
        return _covers_numbers(value, hole)
    plain = not isinstance(value, Block | tuple | Choice | Same)
    if plain and isinstance(hole, Choice) and any(isinstance(option, Numbers) for option in hole.options):
        return any(isinstance(way, Numbers) and _admits(way, value) for way in hole.options) or admits(hole, value)
    return plain and admits(hole, value)


def _ways(value: Value) -> tuple[Value, ...]:
    return value.options if isinstance(value, Choice) else ()


def _key(label: object) -> tuple[type, object]:
    return type(label), label  # true is not 1


def _kind(item: Value) -> str:
    return item.name if isinstance(item, Block) else _shown(item) if isinstance(item, Same) else type(item).__name__


def _shown(value: Value) -> str:
    match value:
        case Block():
            return value.name
        case tuple():
            return f"[{', '.join(map(_shown, value))}]"
        case Same():
            return f"!same {value.name}"
        case Choice() | Integers() | Floats():
            return describe(value)
    return plain(value)
