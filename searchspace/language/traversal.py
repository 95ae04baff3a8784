"""Fills the holes of a space in one traversal, controlled by a function. Sampling, replay, Optuna and mutation use it.

The function `choose(path, hole)` is called once for each hole that becomes active, in document order. It returns the
label of an option (see `holes.labels`) or a number. Paths are stable and follow the file:

    width                                         a field of the model
    body[0].repeat.of[1].residual.norm            a nested field; [1] is the index in a list
    body[0].repeat.of[1].residual.of[0]?attention.heads     a hole in the option `attention` of another hole
    body[0].repeat@2.of[1].residual.norm          with `each: true`: the hole of the second copy

Inside a repeat, a hole is filled once for all copies. With `each: true` it is filled for each copy, and so is
everything inside its options; in nested repeats, for each copy of every repeat. If the `times` of a repeat is filled
for each copy of an outer repeat, so is everything inside it. A repeat that shares its weights has one body, with `@1`
in its paths. `!same NAME` is the hole of that name: the one reached first is filled, and both get its value.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from searchspace import window_growth
from searchspace.errors import Problem, SpaceError, nearest
from searchspace.language.holes import admits, describe, labels, option
from searchspace.tree import Block, Choice, Floats, Hole, Integers, Same, Scalar, Value, has_holes

Choose = Callable[[str, Hole], Any]

REPEAT = "repeat"
BODY = "of"
MAX_FILLED = 4096  # blocks that an outline keeps
MAX_COPIES = 256  # the maximum for repeats whose copies have their own holes
_COPY = re.compile(r"@(\d+)")


@dataclass(frozen=True)
class Home:
    """The place of a named hole.

    repeats: the repeats around it whose copies differ, outermost first. The hole is filled for each copy of the first
    `level` of them. Paths here do not contain copies.
    """

    hole: Hole
    path: str
    repeats: tuple[str, ...]
    level: int

    def placed(self, each: str) -> str:
        """The path of this hole in the copies that contain the path `each`."""
        path = self.path
        for repeat, copy in reversed(list(zip(self.repeats[: self.level], _COPY.findall(each)))):
            path = f"{path[: len(repeat)]}@{copy}{path[len(repeat) :]}"
        return path


def block_path(place: str, block: Block) -> str:
    """The path of `block` at `place`."""
    return _joined(place, block.name)


def field_path(place: str, name: str) -> str:
    """The path of the field `name` of a block at `place`."""
    return _joined(place, name)


def _joined(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


def body_path(place: str, copy: int | None = None) -> str:
    """The path of a repeat's body: in one of its copies, or with None for all copies."""
    return f"{place}.{BODY}" if copy is None else f"{place}@{copy}.{BODY}"


def option_path(path: str, label: object) -> str:
    """The path of the option called `label` of the choice at `path`."""
    return f"{path}?{label}"


class Outline:
    """Facts about a space that do not depend on how it is filled.

    They are: which parts are open, which repeats have copies that differ, and where named holes are. Raises SpaceError
    if a tie (`!same`) is invalid.
    """

    def __init__(self, root: Block):
        self.root = root
        self.homes: dict[str, Home] = {}
        self.tied: set[str] = set()  # names that a `!same` refers to
        # Keys are identities: nodes are immutable, and `root` keeps them alive.
        self._open: dict[int, tuple[str, ...]] = {}
        self._options: dict[tuple[int, type, Scalar], Value] = {}
        self._filled: dict[Hashable, Block] = {}
        self._each: dict[int, bool] = {}
        self._problems: list[Problem] = []
        self._ties: list[tuple[Same, str, tuple[str, ...]]] = []
        self._repeats: dict[str, Block] = {}  # the repeats whose copies differ, by path
        self._scan_block(root, "", (), 0)
        self._check_ties()
        if not self._problems:
            self._check_copies()
        if self._problems:
            raise SpaceError(self._problems)

    def __reduce__(self):  # identities hold in one process
        return Outline, (self.root,)

    def open(self, value: Value) -> bool:
        """Whether there is a hole in `value`."""
        if not isinstance(value, Block):
            return has_holes(value)
        return bool(self.open_fields(value))

    def open_fields(self, block: Block) -> tuple[str, ...]:
        """The fields of `block` that contain holes."""
        key = id(block)
        if key not in self._open:
            self._open[key] = tuple(name for name, value in block.fields.items() if has_holes(value))
        return self._open[key]

    def option(self, choice: Choice, label: Scalar) -> Value:
        """The option called `label`. Raises SpaceError if there is none."""
        key = (id(choice), type(label), label)
        if key not in self._options:
            self._options[key] = option(choice, label)
        return self._options[key]

    def filled(self, block: Block, fields: dict[str, Value]) -> Block:
        """`block` with these fields in place of its own. The same fields give the same object, while it is kept."""
        key = (id(block), *map(_identity, fields.values()))
        found = self._filled.get(key)  # another thread may forget it at any time
        if found is None:
            if len(self._filled) >= MAX_FILLED:
                self._filled.clear()  # all at once, so that every object named in a key is alive
            found = self._filled[key] = Block(block.name, {**block.fields, **fields}, block.mark)
        return found

    def differs(self, block: Block) -> bool:
        """Whether `block` is a repeat whose copies have their own holes."""
        return block.name == REPEAT and self._holds_each(block.fields[BODY])

    def anchored(self, block: Block) -> bool:
        """Whether the other fields of the repeat are filled for each copy of an outer repeat."""
        return any(self._holds_each(value) for name, value in block.fields.items() if name != BODY)

    def _holds_each(self, value: Value) -> bool:
        if not isinstance(value, Block | Choice | Integers | Floats | tuple):
            return False
        key = id(value)
        if key not in self._each:
            own = getattr(value, "each", False)
            self._each[key] = own or any(self._holds_each(below) for below in children(value))
        return self._each[key]

    def _scan(self, value: Value, path: str, repeats: tuple[str, ...], level: int) -> None:
        match value:
            case Block():
                self._scan_block(value, block_path(path, value), repeats, level)
            case tuple():
                for index, item in enumerate(value):
                    self._scan(item, f"{path}[{index}]", repeats, level)
            case Same():
                self._ties.append((value, path, repeats))
            case Choice() | Integers() | Floats():
                self._scan_hole(value, path, repeats, len(repeats) if value.each else level)

    def _scan_hole(self, hole: Hole, path: str, repeats: tuple[str, ...], level: int) -> None:
        if hole.name is not None:
            if hole.name in self.homes:
                self._problem(f"two holes are called {hole.name!r}; give one of them another name", hole, path)
            self.homes.setdefault(hole.name, Home(hole, path, repeats, level))
        for place, value in options(hole, path):
            if isinstance(value, Block):
                self._scan_block(value, place, repeats, level)
            else:
                self._scan(value, place, repeats, level)

    def _scan_block(self, block: Block, place: str, repeats: tuple[str, ...], level: int) -> None:
        if self.differs(block):
            level = len(repeats) if self.anchored(block) else level
            self._repeats[place] = block
        for name, value in block.fields.items():
            inner = (*repeats, place) if name == BODY and self.differs(block) else repeats
            self._scan(value, field_path(place, name), inner, level)

    def _check_ties(self) -> None:
        for same, path, repeats in self._ties:
            home = self.homes.get(same.name)
            if home is None:
                known = nearest(same.name, self.homes)
                self._problem(f"no hole is called {same.name!r}.{known}", same, path)
                continue
            self.tied.add(same.name)
            if repeats[: home.level] != home.repeats[: home.level]:
                place = f"outside the repeat in which {same.name!r} is filled for each copy"
                self._problem(f"!same {same.name} is {place}", same, path)
            if home.level < len(home.repeats) and self._holds_each(home.hole):
                words = f"{same.name!r} is filled once, but holes inside it are filled for each copy"
                self._problem(f"!same {same.name}: {words}; give it each: true", same, path)
        for name in sorted(self.tied):
            if name in self.references(name):
                self._problem(f"{name!r} is tied to itself", self.homes[name].hole, self.homes[name].path)

    def _check_copies(self) -> None:
        for path, block in self._repeats.items():
            around = [other for place, other in self._repeats.items() if path.startswith(place)]
            most = math.prod(map(self.most_copies, around))
            if most > MAX_COPIES:
                message = f"at most {MAX_COPIES} copies can have their own holes (each: true), but there are {most}"
                self._problems.append(Problem(message, block.mark, path))

    def most_copies(self, block: Block) -> int:
        """The largest number of bodies that a repeat can have."""
        return 1 if self.highest(block.fields["share_weights"], min) else self.highest(block.fields["times"])

    def highest(self, value: Value, among: Callable[[Iterable[int]], int] = max) -> int:
        """The highest number that a field can have; with `among=min` the lowest."""
        match value:
            case Same():
                return self.highest(self.homes[value.name].hole, among)
            case Choice():
                return among(self.highest(option, among) for option in value.options)
            case Integers():
                return among((value.low, value.high))
        return value if isinstance(value, int) else 1

    def references(self, name: str) -> set[str]:
        """The names that the hole called `name` refers to, directly or through other holes."""
        found: set[str] = set()
        waiting = [name]
        while waiting:
            for same in ties(self.homes[waiting.pop()].hole):
                if same.name not in found and same.name in self.homes:
                    found.add(same.name)
                    waiting.append(same.name)
        return found

    def _problem(self, message: str, value: Hole | Same, path: str) -> None:
        self._problems.append(Problem(message, value.mark, path))


def _identity(value: Value) -> Hashable:
    """Equal for equal scalars of one type, and for lists of the same objects."""
    if isinstance(value, tuple):
        return tuple(map(_identity, value))
    return id(value) if isinstance(value, Block) else (type(value), value)


class Walk:
    """One way to fill a space. `choices` records the values in the order of the calls of `choose`."""

    def __init__(self, outline: Outline, choose: Choose):
        self.outline = outline
        self.choose = choose
        self.choices: dict[str, Scalar] = {}

    def root(self) -> Block:
        """The filled tree. Raises SpaceError if a chosen value is invalid."""
        block = self._block(self.outline.root, "", "")
        assert isinstance(block, Block)
        return block

    # `path` is the place of a value. `each` is the same place with all copies named, for holes filled for each copy.

    def _value(self, value: Value, path: str, each: str) -> Value:
        match value:
            case Block():
                return self._block(value, block_path(path, value), block_path(each, value))
            case tuple():
                return self._items(value, path, each)
            case Choice() | Integers() | Floats():
                return self._hole(value, each if value.each else path, each)
            case Same():
                home = self.outline.homes[value.name]
                place = home.placed(each)
                return self._hole(home.hole, place, place)
        return value

    def _items(self, items: tuple[Value, ...], path: str, each: str) -> tuple[Value, ...]:
        filled: list[Value] = []
        for index, item in enumerate(items):
            value = self._value(item, f"{path}[{index}]", f"{each}[{index}]")
            if isinstance(value, tuple) and not isinstance(item, tuple):
                filled.extend(value)  # an option that is a list becomes part of the surrounding list
            else:
                filled.append(value)
        return tuple(filled)

    def _block(self, block: Block, place: str, each: str) -> Value:
        names = self.outline.open_fields(block)
        if not names:
            return block
        if self.outline.differs(block):
            return self._copies(block, each if self.outline.anchored(block) else place, each)
        return self.outline.filled(block, self._fields(block, names, place, each))

    def _fields(self, block: Block, names: Iterable[str], place: str, each: str) -> dict[str, Value]:
        return {
            name: self._value(block.fields[name], field_path(place, name), field_path(each, name)) for name in names
        }

    def _copies(self, block: Block, place: str, each: str) -> Value:
        own = self._fields(block, [name for name in block.fields if name != BODY], place, each)
        bodies = [
            self._items(block.fields[BODY], body_path(place), body_path(each, copy))  # type: ignore[arg-type]
            for copy in range(1, copies(own) + 1)
        ]
        if own["share_weights"]:
            return self.outline.filled(block, {**own, BODY: bodies[0]})
        # An empty copy is left out, because `each` may skip a layer. It still counts for the growth of windows.
        alone = {**own, "times": 1, window_growth.GROWTH: 1}
        growth: Any = own[window_growth.GROWTH]
        growing = zip(bodies, window_growth.factors(growth, len(bodies)), strict=True)
        return tuple(
            self.outline.filled(block, {**alone, BODY: window_growth.grown(body, factor)})
            for body, factor in growing
            if body
        )

    def _hole(self, hole: Hole, path: str, each: str) -> Value:
        if path not in self.choices:
            self.choices[path] = self._chosen(hole, path)
        chosen = self.choices[path]
        if not isinstance(hole, Choice):
            return chosen
        value = self.outline.option(hole, chosen)
        if isinstance(value, Block):
            return self._block(value, option_path(path, chosen), option_path(each, chosen))
        return self._value(value, option_path(path, chosen), option_path(each, chosen))

    def _chosen(self, hole: Hole, path: str) -> Scalar:
        chosen = self.choose(path, hole)
        if isinstance(hole, Floats) and type(chosen) is int:
            chosen = float(chosen)  # JSON does not always distinguish 1 from 1.0
        if not admits(hole, chosen):
            raise SpaceError([Problem(f"{chosen!r} does not fit {describe(hole)}", hole.mark, path)])
        return chosen


def realise(root: Block, choose: Choose) -> Block:
    """The tree `root` with every hole filled by `choose`. Raises SpaceError if a chosen value is invalid."""
    return Walk(Outline(root), choose).root()


def copies(own: dict[str, Any]) -> int:
    """The number of bodies of a repeat with these fields: one if they share their weights."""
    return 1 if own["share_weights"] else own["times"]


def options(hole: Hole, path: str) -> Iterator[tuple[str, Value]]:
    """(path of its inside, value) of each option of a choice; nothing for a number."""
    if isinstance(hole, Choice):
        for label, value in zip(labels(hole), hole.options):
            yield option_path(path, label), value


def children(value: Value) -> tuple[Value, ...]:
    """The values directly inside `value`."""
    match value:
        case Block():
            return tuple(value.fields.values())
        case tuple():
            return value
        case Choice():
            return value.options
    return ()


def ties(value: Value) -> Iterator[Same]:
    """All `!same` in `value`."""
    if isinstance(value, Same):
        yield value
    for below in children(value):
        yield from ties(below)
