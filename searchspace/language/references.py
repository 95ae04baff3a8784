"""Checks of the holes of a space: names, `!same`, `each`, and options that must not overlap."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from graphlib import CycleError, TopologicalSorter
from itertools import islice
from typing import Any

from searchspace import registry
from searchspace.errors import Problem, SpaceError, nearest
from searchspace.language import overlap, schema
from searchspace.language.documents import MAX_PROBLEMS
from searchspace.tree import Block, Choice, Floats, Hole, Integers, Same, Value

PathOf = Callable[[object], str]
MOST_NAMES = 20  # of holes, in one message


@dataclass(frozen=True)
class _Scope:
    """A position in a space, and what encloses it.

    options: pairs (choice, option). repeats: innermost last. copies: the repeats whose copies are filled separately.
    holes: the named holes.
    """

    options: frozenset[tuple[int, int]] = frozenset()
    repeats: tuple[Block, ...] = ()
    copies: frozenset[int] = frozenset()
    holes: tuple[str, ...] = ()


@dataclass
class _Walk:
    path_of: PathOf
    complete: bool
    search: overlap.Search = field(default_factory=overlap.Search)
    problems: list[Problem] = field(default_factory=list)
    named: dict[str, tuple[Hole, _Scope]] = field(default_factory=dict)
    sames: list[tuple[Same, _Scope, schema.Accepts]] = field(default_factory=list)

    def problem(self, message: str, node: Hole | Same) -> None:
        self.add(Problem(message, node.mark, self.path_of(node)))

    def add(self, problem: Problem) -> None:
        self.problems.append(problem)
        if len(self.problems) == MAX_PROBLEMS:
            raise SpaceError(self.problems)

    def value(self, value: Value, scope: _Scope, place: schema.Accepts | None) -> None:
        match value:
            case Block():
                self.block(value, scope)
            case tuple():
                for item in value:
                    self.value(item, scope, place)
            case Choice() | Integers() | Floats():
                self.hole(value, scope, place)
            case Same():
                assert place is not None
                self.sames.append((value, scope, place))

    def block(self, block: Block, scope: _Scope) -> None:
        fields = registry.block_type(block.name).fields
        for name, value in block.fields.items():
            inside = block.name == "repeat" and name == "of"
            below = replace(scope, repeats=(*scope.repeats, block)) if inside else scope
            self.value(value, below, schema.accepted(fields[name]))

    def hole(self, hole: Hole, scope: _Scope, place: schema.Accepts | None) -> None:
        if hole.each:
            scope = self.each(hole, scope)
        if hole.name is not None:
            self.name(hole, scope)
            scope = replace(scope, holes=(*scope.holes, hole.name))
        if not isinstance(hole, Choice):
            return
        for index, option in enumerate(hole.options):
            self.value(option, replace(scope, options=scope.options | {(id(hole), index)}), place)
        if self.complete and (pair := overlap.first(hole.options, self.search)):
            self.overlapping(hole, *pair)

    def each(self, hole: Hole, scope: _Scope) -> _Scope:
        if not scope.repeats:
            self.problem("each: true is outside of every repeat, so there are no copies.", hole)
            return scope
        inner = scope.repeats[-1]
        if inner.fields["share_weights"] is True:
            self.problem("each: true is inside a repeat that shares its weights, which has only one copy.", hole)
        return replace(scope, copies=scope.copies | {id(inner)})

    def name(self, hole: Hole, scope: _Scope) -> None:
        assert hole.name is not None
        if hole.name not in self.named:
            self.named[hole.name] = (hole, scope)
            return
        first = self.named[hole.name][0].mark
        where = f", first in line {first.line}" if first else ""
        self.problem(f"Two holes are called {hole.name!r}{where}. To tie them, write !same {hole.name}.", hole)

    def overlapping(self, choice: Choice, i: int, j: int) -> None:
        first, second = choice.options[i], choice.options[j]
        marks: list[Any] = [
            getattr(option[0] if isinstance(option, tuple) and option else option, "mark", None)
            for option in (first, second)
        ]
        lines = f" (lines {marks[0].line} and {marks[1].line})" if all(marks) else ""
        how = "are equal" if schema.same(first, second) else "can become the same"
        message = f"Options {i + 1} and {j + 1}{lines} {how}; the options of a choice must never overlap."
        self.add(Problem(message, marks[1] or choice.mark, self.path_of(choice)))

    def same(self, same: Same, scope: _Scope, place: schema.Accepts) -> None:
        if same.name not in self.named:
            few = ", ".join(map(repr, islice(self.named, MOST_NAMES)))
            more = f" and {len(self.named) - MOST_NAMES:,} more" if len(self.named) > MOST_NAMES else ""
            known = f" Known: {few}{more}." if self.named else " No hole here has a name."
            self.problem(f"No hole is called {same.name!r}.{nearest(same.name, self.named)}{known}", same)
            return
        hole, defined = self.named[same.name]
        line = f" (line {hole.mark.line})" if hole.mark else ""
        if not defined.options <= scope.options:
            if same.name not in scope.holes:
                message = f"The hole {same.name!r}{line} is inside an option that need not be chosen"
                self.problem(f"{message} where this !same is used.", same)
        elif not defined.copies <= {id(repeat) for repeat in scope.repeats}:
            self.problem(
                f"The hole {same.name!r}{line} is filled for each copy of a repeat, but this !same is outside "
                "of that repeat.",
                same,
            )
        if not _fits(place, hole):
            self.problem(f"Expected {place.expected}, but the hole {same.name!r}{line} has other values.", same)

    def cycles(self) -> None:
        """Reports holes that contain themselves by `!same`, directly or through other holes."""
        leads: dict[str, set[str]] = {name: set() for name in self.named}
        for same, scope, _ in self.sames:
            for holder in scope.holes:
                leads[holder].add(same.name)
        try:
            TopologicalSorter(leads).prepare()
        except CycleError as error:
            names = error.args[1]
            same = next(s for s, scope, _ in self.sames if s.name in names and set(names) & set(scope.holes))
            self.problem(
                f"The holes {', '.join(sorted(map(repr, set(names))))} contain each other by !same, "
                "so they would never end.",
                same,
            )


def check(root: Block, path_of: PathOf = lambda _: "", *, complete: bool = True) -> list[Problem]:
    """All problems with the holes of `root`. `path_of` returns the path of a node.

    complete: whether the whole tree could be read. If not, checks that need all of it are skipped. After
    `MAX_PROBLEMS` problems the rest is not checked.
    """
    walk = _Walk(path_of, complete)
    try:
        walk.value(root, _Scope(), None)
        if complete:
            for same, scope, place in walk.sames:
                walk.same(same, scope, place)
            walk.cycles()
    except SpaceError as too_many:
        return too_many.problems
    return walk.problems


def _fits(place: schema.Accepts, hole: Hole) -> bool:
    return place.holds(hole) if place.shape in (None, "one") else place.holds((hole,)) or place.holds(((hole,),))
