"""Points of a space as rows of numbers, so that thousands of candidates are made and compared without building them.

A row has one number for each hole that can become active: the index of the value, or for a real interval the position
between its ends. A row has a number for every hole. `active` tells from the paths of the holes which of them count: a
hole inside an option counts if the option is chosen, and one in the third copy of a repeat if there are three copies.
N rows, D holes.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from nas.strategies.contract import SearchSpace
from searchspace.language.holes import draw, from_unit, labels, sorted_numbers, unit, values
from searchspace.language.traversal import option_path
from searchspace.tree import Choice, Floats, Hole, Integers, Scalar

OPEN = -1  # the number of values of a real interval
MOST_VALUES = 20_000  # a grid with more values counts as a real interval
WALKS = 30  # random points whose holes are those of a space that does not list them
UNSET = -1.0  # of a hole that is not active in the point that a row was made from
_COPY = re.compile(r"@(\d+)")
TIMES = ".times"  # how the path of the number of copies ends


class Codes:
    """The holes of a space as columns.

    paths: by column. counts: values of each hole, `OPEN` for a real interval. ordered: whether the values are numbers.
    units: by column, the positions of the values from 0 to 1. groups: by column, the number of the hole without its
    copies: equal for the same hole in different layers. layers: for each repeat, the columns of its copies, [copies,
    holes], `OPEN` where a copy has no such hole.
    """

    def __init__(self, space: SearchSpace) -> None:
        self.holes = holes_of(space)
        self.paths = list(self.holes)
        self.place = {path: column for column, path in enumerate(self.paths)}
        self._values = [_listed(hole) for hole in self.holes.values()]
        self.counts = np.array([OPEN if known is None else len(known) for known in self._values], dtype=int)
        self.ordered = np.array([is_ordered(hole) for hole in self.holes.values()], dtype=bool)
        self.units = [_units(hole, known) for hole, known in zip(self.holes.values(), self._values)]
        self._index = [
            None if known is None else {(type(value), value): index for index, value in enumerate(known)}
            for known in self._values
        ]
        names: dict[str, int] = {}
        groups = [names.setdefault(_COPY.sub("", path), len(names)) for path in self.paths]
        self.groups = np.array(groups, dtype=int)  # a space without holes has none
        self.names = list(names)
        self.layers = _layers(self.paths)
        self._set_rules([self._rule(path) for path in self.paths])
        self._fills = self._neighbours()

    def row(self, choices: Mapping[str, Scalar]) -> np.ndarray:
        """The row of a point: [D], `UNSET` for holes that it lacks, and for values that a hole lacks."""
        found = [UNSET] * len(self.paths)
        for path, value in choices.items():
            column = self.place.get(path)
            if column is not None:
                known = self._index[column]
                found[column] = self._unit(column, value) if known is None else known.get((type(value), value), UNSET)
        return np.array(found, dtype=float)

    def choices(self, row: np.ndarray) -> dict[str, Scalar]:
        """The value of every hole of a row, also of those that are not active; [D]."""
        return {path: self._value(column, row[column]) for column, path in enumerate(self.paths)}

    def filled(self, row: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """`row` [D] with a number for every hole: that of the nearest copy that has one, else a random one."""
        found = row.copy()
        missing = np.flatnonzero(row == UNSET)
        for column in missing:
            other = next((each for each in self._fills[column] if row[each] != UNSET), None)
            found[column] = UNSET if other is None else row[other]
        left = np.flatnonzero(found == UNSET)
        if len(left):
            found[left] = self.random(1, rng)[0, left]
        return found

    def random(self, count: int, rng: np.random.Generator, alike: bool = False) -> np.ndarray:
        """`count` random rows, [N, D]. alike: every copy of a hole gets the same number."""
        drawn = rng.random((count, len(self.names) if alike else len(self.paths)))
        if alike:
            drawn = drawn[:, self.groups]
        found = np.empty(drawn.shape)
        for column, known in enumerate(self.units):
            found[:, column] = self.nearest(column, drawn[:, column], known)
        return found

    def nearest(self, column: int, positions: np.ndarray, known: np.ndarray | None) -> np.ndarray:
        """The numbers of the values at `positions` (0 to 1) of a hole, [N]."""
        if known is None:
            return positions
        if not self.ordered[column] or isinstance(self.holes[self.paths[column]], Choice):
            return np.minimum((positions * len(known)).astype(int), len(known) - 1)
        places = np.searchsorted(known, positions).clip(1, max(1, len(known) - 1))
        if len(known) == 1:
            return np.zeros(len(positions))
        return np.where(positions - known[places - 1] < known[places] - positions, places - 1, places)

    def deepest(self) -> np.ndarray:
        """A row in which every repeat has all of its copies, and every other hole its first value; [D]."""
        found = np.zeros(len(self.paths))
        for column, (path, known) in enumerate(zip(self.paths, self.units)):
            if path.endswith(TIMES) and known is not None:
                found[column] = np.argmax(known)
        return found

    def active(self, rows: np.ndarray) -> np.ndarray:
        """Which holes count in `rows` [N, D]: [N, D] of bool. Holes come after those that they depend on."""
        if not len(self._parents):
            return np.ones(rows.shape, dtype=bool)
        numbers = rows[:, self._parents]
        broken = (numbers < self._low) | (numbers > self._high)
        return broken.astype(np.float32) @ self._needs == 0

    def _unit(self, column: int, value: Scalar) -> float:
        hole = self.holes[self.paths[column]]
        assert isinstance(hole, Integers | Floats)
        if not isinstance(value, int | float) or not hole.low <= value <= hole.high:
            return UNSET
        return unit(hole, value)

    def _value(self, column: int, number: float) -> Scalar:
        known = self._values[column]
        if known is not None:
            return known[int(number)]
        hole = self.holes[self.paths[column]]
        assert isinstance(hole, Integers | Floats)
        return from_unit(hole, float(number))

    def _set_rules(self, rules: list[list[tuple[int, float, float]]]) -> None:
        """List each rule once, and for each hole the rules that it needs, with those of the holes in its rules."""
        places: dict[tuple[int, float, float], int] = {}
        needed: list[set[int]] = []
        for own in rules:  # holes come after those that they depend on
            mine = {places.setdefault(rule, len(places)) for rule in own}
            mine |= {each for parent, _, _ in own if parent < len(needed) for each in needed[parent]}
            needed.append(mine)
        table = np.array(list(places), dtype=float).reshape(-1, 3)
        self._parents, self._low, self._high = table[:, 0].astype(int), table[:, 1], table[:, 2]
        self._needs = np.zeros((len(places), len(rules)), dtype=np.float32)
        for column, mine in enumerate(needed):
            self._needs[sorted(mine), column] = 1

    def _rule(self, path: str) -> list[tuple[int, float, float]]:
        """What must hold for the hole at `path` to be active: [(column, lowest number, highest number)]."""
        rules = [self._option_rule(path, match.start()) for match in re.finditer(r"\?", path)]
        rules += [self._copy_rule(path, match) for match in _COPY.finditer(path)]
        return [rule for rule in rules if rule is not None]

    def _option_rule(self, path: str, at: int) -> tuple[int, float, float] | None:
        parent = self._known(path[:at])
        hole = self.holes.get(parent) if parent is not None else None
        if parent is None or not isinstance(hole, Choice):
            return None
        fitting = [
            (len(str(label)), index)
            for index, label in enumerate(labels(hole))
            if path[at:].startswith(option_path("", label))
            and path[at + 1 + len(str(label)) :][:1] in ("", ".", "[", "?", "@")
        ]
        if not fitting:
            return None
        index = max(fitting)[1]
        return self.place[parent], index, index

    def _copy_rule(self, path: str, match: re.Match[str]) -> tuple[int, float, float] | None:
        parent = self._known(f"{path[: match.start()]}{TIMES}")
        if parent is None:
            return None
        known = self._values[self.place[parent]] or ()
        enough = [index for index, value in enumerate(known) if isinstance(value, int) and value >= int(match[1])]
        return (self.place[parent], min(enough), max(enough)) if enough else None

    def _known(self, path: str) -> str | None:
        """The path of the hole that is filled there: that of the same copies, or of fewer."""
        while path not in self.holes:
            copies = list(_COPY.finditer(path))
            if not copies:
                return None
            path = path[: copies[-1].start()] + path[copies[-1].end() :]
        return path

    def _neighbours(self) -> list[list[int]]:
        """By column: the columns of the same hole in other copies, the nearest first, earlier before later."""
        copies = [[int(each) for each in _COPY.findall(path)] for path in self.paths]
        found: list[list[int]] = []
        for column, group in enumerate(self.groups):
            others = [int(each) for each in np.flatnonzero(self.groups == group) if each != column]
            found.append(sorted(others, key=lambda each: (_distance(copies[each], copies[column]), copies[each])))
        return found


def holes_of(space: SearchSpace) -> dict[str, Hole]:
    """The holes of a space by path; those of some random points if it does not list them."""
    known = getattr(space, "dimensions", None)
    if known is not None:
        return dict(known)
    found: dict[str, Hole] = {}
    rng = random.Random(0)

    def record(path: str, hole: Hole) -> Any:
        found.setdefault(path, hole)
        return draw(hole, rng)

    for _ in range(WALKS):
        space.realise(record)
    return found


def is_ordered(hole: Hole) -> bool:
    """Whether the values of a hole are numbers, so that one value is nearer than another."""
    return not isinstance(hole, Choice) or sorted_numbers(hole) is not None


def _listed(hole: Hole) -> list[Scalar] | None:
    """The values of a hole, numbers by size; None for a real interval or for too many."""
    known = sorted_numbers(hole) or values(hole)
    return None if known is None or len(known) > MOST_VALUES else list(known)


def _units(hole: Hole, known: list[Scalar] | None) -> np.ndarray | None:
    """The positions of the values of a hole: of numbers by size, of a choice by rank; None for a real interval."""
    if known is None:
        return None
    if not isinstance(hole, Choice):
        return np.array([unit(hole, value) for value in known])  # type: ignore[arg-type]
    return np.arange(len(known)) / max(1, len(known) - 1)


def _layers(paths: list[str]) -> list[np.ndarray]:
    """For each repeat whose copies have holes of their own, the columns of each copy: [copies, holes]."""
    found: dict[str, dict[int, dict[str, int]]] = {}
    for column, path in enumerate(paths):
        for match in _COPY.finditer(path):
            copies = found.setdefault(path[: match.start()], {})
            copies.setdefault(int(match[1]), {})[path[match.end() :]] = column
    made = []
    for copies in found.values():
        names = list(dict.fromkeys(name for holes in copies.values() for name in holes))
        if len(copies) > 1:
            made.append(np.array([[copies[copy].get(name, OPEN) for name in names] for copy in sorted(copies)]))
    return made


def _distance(one: list[int], other: list[int]) -> int:
    return sum(abs(a - b) for a, b in zip(one, other))
