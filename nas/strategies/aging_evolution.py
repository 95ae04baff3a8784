"""Aging evolution: the best of a random sample has a mutated child, and the oldest dies, however good it is.

Real et al. 2019, "Regularized Evolution for Image Classifier Architecture Search", https://arxiv.org/abs/1802.01548,
algorithm 1. With several objectives the best is the one of the lowest Pareto front, then the loneliest. Children come
before the first generation is full: of budgets of some hundred trials, a hundred random ones would be a waste.
"""

from __future__ import annotations

from collections import OrderedDict
from random import Random
from typing import Annotated

from pydantic import Field

from nas.strategies.contract import Proposal, Result, SearchSpace, generator
from nas.strategies.population import Failures, Member, best_first, extra_mutations, mutated
from nas.strategies.registry import strategy


@strategy("aging_evolution")
class AgingEvolution:
    """`population`: how many trials live; `sample`: how many of them compete to be the parent; `start`: random trials
    before the first child."""

    def __init__(
        self,
        space: SearchSpace,
        *,
        seed: int,
        objectives: int = 1,
        population: Annotated[int, Field(ge=1)] = 100,
        sample: Annotated[int, Field(ge=1)] = 20,
        start: Annotated[int, Field(ge=1)] = 20,
    ) -> None:
        self.space = space
        self.seed = seed
        self.population = population
        self.sample = sample
        self.start = min(start, population)
        self.failures = Failures()
        self.members: OrderedDict[int, Member] = OrderedDict()  # oldest first, by the order in which they finished
        self._ranked: list[Member] | None = None  # best first; None when it has to be made anew

    def ask(self, number: int, attempt: int = 0) -> Proposal:
        rng = generator(self.seed, number, attempt)
        if len(self.members) < self.start:
            return self.failures.avoid(lambda _: Proposal(self.space.sample(rng), "random"), attempt)
        return self.failures.avoid(lambda tried: self._child(rng, tried), attempt)

    def tell(self, result: Result) -> None:
        if self.failures.learn(result):
            if self.members.pop(result.number, None):
                self._ranked = None
            return
        aged_out = result.rung > 0 and result.number not in self.members
        if aged_out or result.point is None or result.values is None:
            return
        self.members[result.number] = Member(result.number, result.point, result.values)
        if len(self.members) > self.population:
            self.members.popitem(last=False)
        self._ranked = None

    def _child(self, rng: Random, tried: int) -> Proposal:
        if self._ranked is None:
            self._ranked = best_first(list(self.members.values()))
        places = rng.sample(range(len(self._ranked)), min(self.sample, len(self._ranked)))
        parent = self._ranked[min(places)]
        return Proposal(
            mutated(self.space, parent.point, rng, 1 + extra_mutations(tried)), "mutation", (parent.number,)
        )
