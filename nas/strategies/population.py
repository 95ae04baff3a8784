"""What the evolutionary strategies share: members, known failures, and how a child is made."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nas import pareto
from nas.strategies.contract import NothingLeft, Proposal, Result, SearchSpace

if TYPE_CHECKING:
    from searchspace.space.space import Point

TRIES = 200  # draws in a row that are known to fail before a space counts as exhausted by failures
PATIENCE = 3  # draws that found nothing new before a proposal is mutated once more
MOST = 8  # such mutations at most: by then it is about as good as a random architecture


@dataclass(frozen=True)
class Member:
    """A trial that can be a parent."""

    number: int
    point: Point
    values: tuple[float, ...]


class Failures:
    """The architectures that are known to fail, by hash."""

    def __init__(self) -> None:
        self._hashes: set[str] = set()

    def learn(self, result: Result) -> bool:
        """Whether `result` is a failure (no value, or one that is not finite); remembered if so."""
        failed = result.values is None or not all(map(math.isfinite, result.values))
        if failed and result.point is not None:
            self._hashes.add(result.point.architecture.hash)
        return failed

    def avoid(self, draw: Callable[[int], Proposal], attempt: int) -> Proposal:
        """The first drawn proposal that is not known to fail. Raises NothingLeft when there is none to be found.

        `draw` is told how many draws for this trial came before: see `extra_mutations`.
        """
        for tried in range(attempt, attempt + TRIES):
            proposal = draw(tried)
            if proposal.point.architecture.hash not in self._hashes:
                return proposal
        raise NothingLeft(
            f"{TRIES} proposals in a row were architectures that are known to fail ({len(self._hashes)} are): "
            "look at their errors, or widen the space."
        )


def best_first(members: Sequence[Member]) -> list[Member]:
    """By Pareto front (with one objective: by value), then the lonelier first."""
    return [members[index] for index in pareto.order([member.values for member in members])]


def extra_mutations(tried: int) -> int:
    """How many mutations to add to what a strategy would propose: more, the longer nothing new was found."""
    return min(tried // PATIENCE, MOST)


def mutated(space: SearchSpace, point: Point, rng: random.Random, times: int) -> Point:
    """`point` with one hole after another changed at random."""
    for _ in range(times):
        point = space.mutate(point, rng)
    return point
