"""What the evolutionary strategies share: the random start, members of a population, and how a child is mutated."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from nas import pareto
from nas.strategies.contract import SearchSpace

if TYPE_CHECKING:
    from searchspace.space.point import Point

PATIENCE = 3  # draws without a new point before each child is mutated once more
Moves = Literal["one", "all"]
AUTO: Literal["auto"] = "auto"
MOST_RANDOM = 20  # random trials before the first child, if the budget is large or unknown
FEWEST_RANDOM = 4
MOST = 8  # such mutations at most: such a child is about as good as a random architecture


def random_start(start: int | Literal["auto"], trials: int | None) -> int:
    """How many random trials come before the first child. `auto` is a quarter of `trials`, from 4 to 20.

    So a search of 8 trials or more has at least as many children as random trials. With an unknown number it is 20.
    """
    if start != AUTO:
        return start
    return MOST_RANDOM if trials is None else min(MOST_RANDOM, max(FEWEST_RANDOM, trials // 4))


@dataclass(frozen=True)
class Member:
    """A trial that can be a parent."""

    number: int
    point: Point
    values: tuple[float, ...]


def best_first(members: Sequence[Member]) -> list[Member]:
    """The members by Pareto front (with one objective: by value), then the less crowded first."""
    return [members[index] for index in pareto.order([member.values for member in members])]


def extra_mutations(tried: int) -> int:
    """How many mutations to add to a child after `tried` draws without a new point."""
    return min(tried // PATIENCE, MOST)


def mutated(space: SearchSpace, point: Point, rng: random.Random, times: int, moves: Moves = "one") -> Point:
    """`point` after `times` mutations. moves: `all` may also change all layers alike, or move layers."""
    change = getattr(space, "vary", space.mutate) if moves == "all" else space.mutate
    for _ in range(times):
        point = change(point, rng)
    return point


def crossed(space: SearchSpace, a: Point, b: Point, rng: random.Random, moves: Moves) -> Point:
    """A crossover of two points. moves: `all` may also exchange a segment of layers."""
    cross = getattr(space, "exchange", space.crossover) if moves == "all" else space.crossover
    return cross(a, b, rng)
