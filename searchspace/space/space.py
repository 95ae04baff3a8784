"""A space of architectures: a tree with holes, and constraints on the costs.

A *point* is one way to fill the holes. Each point gives one architecture. Different points can give the same
architecture (two steps of [A, A] and four of [A]); `distinct` counts architectures.
"""

from __future__ import annotations

import random
from collections import Counter as Tally
from collections.abc import Iterable, Iterator
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np

from searchspace import window_growth
from searchspace.cost import Cost, Shape
from searchspace.errors import Problem, SpaceError, nearest
from searchspace.language import language, schema
from searchspace.language.canonical import canonical
from searchspace.language.collecting import collected_later
from searchspace.language.constraints import Constraint
from searchspace.language.holes import describe, draw, values
from searchspace.language.traversal import Choose, Outline, Walk
from searchspace.model import build
from searchspace.model.architecture import Architecture
from searchspace.parts import Part, too_long
from searchspace.space import encoding, moves, variation
from searchspace.space.counting import Counter
from searchspace.space.dimensions import dimensions
from searchspace.space.locate import locate
from searchspace.space.point import Point
from searchspace.tree import Block, Floats, Hole, Mark, Scalar
from searchspace.wording import plural

LENGTH = 1024  # the sequence length for constraints, unless another is given
_Odometer = list[tuple[int, int]]  # (index of the value, number of values) of each hole; the last one changes first
BUILDS = "builds"  # the implicit constraint that the values fit together


@dataclass(frozen=True)
class Violation:
    """A constraint that an architecture violates. `value` and `bound` are None if the architecture does not build."""

    quantity: str
    value: float | None
    bound: float | None
    message: str
    mark: Mark | None = None

    @property
    def excess(self) -> float:
        """The distance of the value from the bound, relative to the bound; infinite if it does not build."""
        if self.value is None or self.bound is None:
            return float("inf")
        return abs(self.value - self.bound) / max(abs(self.bound), 1e-12)


@dataclass(frozen=True)
class Size:
    """The size of a space without its constraints.

    points: the number of points; None if there are real intervals. continuous: the number of real intervals. discrete:
    the number of points if each real interval counts as one value.
    """

    points: int | None
    continuous: int
    discrete: int

    def __str__(self) -> str:
        if self.points is not None:
            return plural(self.points, "point")
        return f"{plural(self.discrete, 'point')} times {plural(self.continuous, 'real interval')}"


class Space:
    """A tree with holes and constraints. Raises SpaceError if names, types or ties are invalid."""

    def __init__(
        self,
        root: Block,
        constraints: Iterable[Constraint] = (),
        length: int | None = None,
        read: int | None = None,
        *,
        completed: bool = False,
    ):
        """completed: the language has read `root`, so its fields are known to be complete and of the right types."""
        self.root = root if completed else schema.complete(root)
        self.constraints = tuple(constraints)
        self.length = LENGTH if length is None else length
        self.read = length if read is None else read  # the length that its models must be able to read, if known
        if problems := window_growth.problems(self.root):
            raise SpaceError(problems)
        self.outline = Outline(self.root)

    @classmethod
    @collected_later()
    def parse(cls, text: str, source: str = "<text>", given: language.Given | None = None) -> Space:
        """Reads a space from YAML. `given` fields of the model are filled in if the text leaves them out.

        Raises SpaceError with all problems.
        """
        description = language.parse(text, source, given)
        return cls(description.root, description.constraints, completed=True)

    @classmethod
    @collected_later()
    def load(cls, path: str | Path, given: language.Given | None = None) -> Space:
        """Reads the file at `path`; see `parse`. Raises SpaceError with all problems."""
        description = language.load(path, given)
        return cls(description.root, description.constraints, completed=True)

    def text(self, *, defaults: bool = False) -> str:
        """The space as YAML; it parses to the same space. `defaults` also writes the default values."""
        return language.render(self.root, self.constraints, defaults=defaults)

    def with_length(self, length: int, read: int | None = None) -> Space:
        """The same space for sequences of `length` positions.

        read: the number of positions that its models must be able to read, if that is not `length`.
        """
        same = copy(self)  # with the same tree, outline and count of points, which are independent of the length
        same.length, same.read = length, length if read is None else read
        return same

    @cached_property
    def dimensions(self) -> dict[str, Hole]:
        """All holes that can become active, by path, in document order, with the copies of the longest repeats."""
        return dimensions(self.outline)

    @cached_property
    def _counter(self) -> Counter:
        return Counter(self.outline)

    def size(self) -> Size:
        """The exact number of points, without constraints. Raises SpaceError if ties make it too hard to count."""
        continuous = sum(isinstance(hole, Floats) and values(hole) is None for hole in self.dimensions.values())
        total = self._counter.total
        return Size(None if continuous else total, continuous, total)

    def distinct(self, limit: int = 100_000) -> int:
        """The number of different architectures, by enumeration. Raises SpaceError for more than `limit` points."""
        size = self.size()
        if size.points is None or size.points > limit:
            raise SpaceError(f"Too large to enumerate: {size}, but limit is {limit:,}.")
        return len({point.architecture.hash for point in self.enumerate()})

    def realise(self, choose: Choose) -> Point:
        """The point whose holes are filled by `choose(path, hole)`; see `searchspace.language.traversal`.

        Raises SpaceError if a value is invalid.
        """
        walk = Walk(self.outline, choose)
        # `root` is complete, so the filled tree is complete, and only the canonical form is missing.
        return Point(walk.choices, Architecture(canonical(walk.root())))

    def point(self, choices: dict[str, Scalar]) -> Point:
        """The point with recorded choices. Raises SpaceError if one is missing, unknown or invalid."""

        def recorded(path: str, hole: Hole) -> Scalar:
            if path not in choices:
                message = f"nothing is chosen for {describe(hole)}.{nearest(path, choices)}"
                raise SpaceError([Problem(message, hole.mark, path)])
            return choices[path]

        point = self.realise(recorded)
        unused = [path for path in choices if path not in point.choices]
        if unused:
            raise SpaceError(
                [Problem(f"no such hole is open here.{nearest(path, point.choices)}", None, path) for path in unused]
            )
        return point

    def enumerate(self) -> Iterator[Point]:
        """All points in a fixed order, infeasible ones included. Raises SpaceError if there are real intervals."""
        order: _Odometer | None = []
        while order is not None:
            turned, seen = order, _Odometer()

            def turn(path: str, hole: Hole, turned: _Odometer = turned, seen: _Odometer = seen) -> Scalar:
                known = values(hole)
                if known is None:
                    raise SpaceError([Problem(f"{describe(hole)} has no list of values", hole.mark, path)])
                index = turned[len(seen)][0] if len(seen) < len(turned) else 0
                seen.append((index, len(known)))
                return known[index]

            yield self.realise(turn)
            order = _advanced(seen)

    def sample(
        self,
        rng: random.Random,
        by: Literal["choices", "architectures"] = "choices",
        feasible: bool = True,
        tries: int = 1000,
    ) -> Point:
        """A random point.

        by: "choices" draws each hole uniformly when it is reached (log holes in the logarithm), so all options of a
        choice are equally likely, whatever is inside them. "architectures" draws all points with equal probability.
        feasible: whether to draw again if a constraint is violated.

        Raises SpaceError if none of `tries` points is feasible; it names the constraint that failed most often and the
        nearest sample. Raises ValueError if `by` is unknown.
        """
        if by not in ("choices", "architectures"):
            raise ValueError(f"by must be 'choices' or 'architectures', but got {by!r}.")
        counter = self._counter if by == "architectures" else None
        broken: list[Violation] = []
        for _ in range(tries):
            try:
                point = self.point(counter.draw(rng)) if counter else self.realise(lambda _, hole: draw(hole, rng))
            except SpaceError as error:  # too many blocks with repeats expanded
                broken.append(Violation(BUILDS, None, None, str(error)))
                continue
            found = self.violations(point.architecture) if feasible else []
            if not found:
                return point
            broken += found
        raise _nothing_feasible(broken, tries)

    def violations(self, architecture: Architecture) -> list[Violation]:
        """The constraints that `architecture` violates for one sequence of `length` positions."""
        try:
            whole = Part(name="model", shape=Shape(length=self.read or 1), block=architecture.configured)
            if self.read and (beyond := too_long(whole)):
                return [Violation(BUILDS, None, None, beyond)]
            if not self.constraints:
                return []
            cost = build.cost(architecture, Shape(batch=1, length=self.length))
        except ValueError as error:
            return [Violation(BUILDS, None, None, str(error))]
        found = (self._violation(constraint, cost) for constraint in self.constraints)
        return [violation for violation in found if violation]

    def _violation(self, constraint: Constraint, cost: Cost) -> Violation | None:
        value = measured(cost, constraint.quantity, self.length)
        for bound, beyond, word in ((constraint.low, -1, "at least"), (constraint.high, 1, "at most")):
            if bound is not None and (value - bound) * beyond > 0:
                message = f"{constraint.quantity} must be {word} {bound:,}, but is {value:,}."
                return Violation(constraint.quantity, value, bound, message, constraint.mark)
        return None

    def feasible(self, point: Point) -> bool:
        """Whether the architecture of `point` builds and satisfies all constraints."""
        return not self.violations(point.architecture)

    def mutate(self, point: Point, rng: random.Random) -> Point:
        """`point` with one hole filled differently; see `searchspace.space.variation`."""
        return variation.mutate(self, point, rng)

    def vary(self, point: Point, rng: random.Random) -> Point:
        """Like `mutate`; it may also change all layers alike, or move layers; see `searchspace.space.moves`."""
        return moves.vary(self, point, rng)

    def exchange(self, a: Point, b: Point, rng: random.Random) -> Point:
        """Like `crossover`; it may also exchange a segment of layers; see `searchspace.space.moves`."""
        return moves.exchange(self, a, b, rng)

    def crossover(self, a: Point, b: Point, rng: random.Random) -> Point:
        """A feasible point with values from `a` and `b`; see `searchspace.space.variation`."""
        return variation.crossover(self, a, b, rng)

    def neighbours(self, point: Point, rng: random.Random) -> Iterator[Point]:
        """All feasible architectures that differ from `point` in one hole; see `searchspace.space.variation`."""
        return variation.neighbours(self, point, rng)

    def encode(self, point: Point) -> np.ndarray:
        """`point` as a vector of float64 [columns]; see `searchspace.space.encoding`."""
        return encoding.encode(self.dimensions, point)

    def locate(self, architecture: Architecture) -> Point | None:
        """A point that gives `architecture`, or None; constraints are ignored."""
        for choices in locate(self.outline, architecture.root):
            point = self.point(choices)
            if point.architecture.hash == architecture.hash:
                return point
        return None

    def contains(self, architecture: Architecture) -> bool:
        """Whether a point gives `architecture`; constraints are ignored."""
        return self.locate(architecture) is not None


def measured(cost: Cost, quantity: str, length: int) -> float:
    """The value of a constraint's quantity: a field of `Cost`, or `state_bytes_per_token`."""
    return cost.state_bytes / length if quantity == "state_bytes_per_token" else getattr(cost, quantity)


def _advanced(seen: _Odometer) -> _Odometer | None:
    """The next state: the last hole with another value takes it, and the holes after it start again."""
    while seen:
        index, count = seen.pop()
        if index + 1 < count:
            return [*seen, (index + 1, count)]
    return None


def _nothing_feasible(broken: list[Violation], tries: int) -> SpaceError:
    (quantity, bound), times = Tally((violation.quantity, violation.bound) for violation in broken).most_common(1)[0]
    nearest_one = min(
        (violation for violation in broken if (violation.quantity, violation.bound) == (quantity, bound)),
        key=lambda violation: violation.excess,
    )
    if quantity == BUILDS:
        reason = nearest_one.message.replace("\n", "; ")
        message = f"none of {tries} samples is feasible; {times} do not build. One of them: {reason}"
        return SpaceError([Problem(message)])
    message = (
        f"none of {tries} samples is feasible; {times} break {quantity}. "
        f"The nearest: {nearest_one.message} Loosen the constraint or widen the space."
    )
    return SpaceError([Problem(message, nearest_one.mark, f"constraints.{quantity}")])
