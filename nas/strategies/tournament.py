"""Tournament selection with seeding, as the Evolved Transformer was found.

So et al. 2019, "The Evolved Transformer", https://arxiv.org/abs/1901.11117, section 3: a seed architecture starts the
population; one tournament among a random sample chooses the parent, and another one chooses the worst, which leaves.
Each hole of a child changes with a small probability. The paper adds progressive dynamic hurdles: the scheduler
`hurdles`.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Annotated

import numpy as np

from nas import pareto
from nas.options import Field, Number, Start, Trials
from nas.strategies.base import StrategyBase
from nas.strategies.contract import Evaluate, Proposal, Result, SearchSpace
from nas.strategies.population import AUTO, Member, extra_mutations, mutated, random_start
from nas.strategies.registry import strategy

if TYPE_CHECKING:
    from searchspace.space.point import Point


@strategy("tournament")
class Tournament(StrategyBase):
    """population: how many trials are members. sample: how many compete, to be the parent and to leave. start: trials
    before the first tournament. seeded: until then, mutations of the first result (a baseline of the search) instead of
    random points. changes: the mean number of changed holes of a child."""

    def __init__(
        self,
        space: SearchSpace,
        *,
        seed: int,
        objectives: int = 1,
        evaluate: Evaluate | None = None,
        trials: int | None = None,
        population: Annotated[Trials, Field(ge=2)] = 100,
        sample: Trials = 30,
        start: Start = AUTO,
        seeded: bool = True,
        changes: Annotated[Number, Field(ge=1, le=1_000)] = 1.5,
    ) -> None:
        super().__init__(space, seed=seed, objectives=objectives, evaluate=evaluate)
        self.population, self.sample = population, sample
        self.first = min(random_start(start, trials), population)
        self.resolved = {"start": self.first}
        self.seeded, self.changes = seeded, changes
        self.members: dict[int, Member] = {}  # by number
        self.seeds: Member | None = None

    def propose(self, rng: Random, number: int, tried: int) -> Proposal:
        if len(self.members) < self.first:
            if not self.seeded or self.seeds is None:
                return Proposal(self.space.sample(rng), "random")
            return self._child(self.seeds, rng, tried)
        return self._child(self._best(rng), rng, tried)

    def learn(self, result: Result, failed: bool) -> None:
        if failed or result.point is None or result.values is None:
            self.members.pop(result.number, None)
            return
        dropped = result.rung > 0 and result.number not in self.members
        if dropped:
            return
        member = Member(result.number, result.point, result.values)
        self.seeds = self.seeds or member
        self.members[result.number] = member
        if len(self.members) > self.population:
            del self.members[self._worst(Random(f"{self.seed}/{result.number}/{result.rung}"))]

    def _child(self, parent: Member, rng: Random, tried: int) -> Proposal:
        times = 1 + extra_mutations(tried)
        while rng.random() < 1 - 1 / self.changes:  # a geometric number, `changes` on average
            times += 1
        point: Point = mutated(self.space, parent.point, rng, times)
        return Proposal(point, "mutation", (parent.number,))

    def _best(self, rng: Random) -> Member:
        members = self._competitors(rng)
        return members[int(pareto.order(np.array([member.values for member in members]))[0])]

    def _worst(self, rng: Random) -> int:
        members = self._competitors(rng)
        return members[int(pareto.order(np.array([member.values for member in members]))[-1])].number

    def _competitors(self, rng: Random) -> list[Member]:
        members = list(self.members.values())
        return rng.sample(members, min(self.sample, len(members)))
