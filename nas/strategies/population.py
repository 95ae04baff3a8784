"""What the evolutionary strategies share: members of a population, and how a child is mutated."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nas import pareto
from nas.strategies.contract import SearchSpace

if TYPE_CHECKING:
    from searchspace.space.point import Point

PATIENCE = 3  # draws without a new point before each child is mutated once more
MOST = 8  # such mutations at most: such a child is about as good as a random architecture


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


def mutated(space: SearchSpace, point: Point, rng: random.Random, times: int) -> Point:
    """`point` after `times` mutations."""
    for _ in range(times):
        point = space.mutate(point, rng)
    return point
