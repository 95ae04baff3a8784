"""NSGA-II without generations: every result enters the population at once, and the worst member leaves it.

Deb et al. 2002, "A fast and elitist multiobjective genetic algorithm: NSGA-II", https://doi.org/10.1109/4235.996017:
tournaments, crossover, mutation, and environmental selection by front and crowding. Steady state (Durillo et al. 2009,
"On the Effect of the Steady-State Selection Scheme in Multi-Objective Genetic Algorithms",
https://doi.org/10.1007/978-3-642-01020-0_18) because workers finish one by one and nobody should wait for a generation.
"""

from __future__ import annotations

from random import Random
from typing import Annotated

import numpy as np
from pydantic import Field

from nas import pareto
from nas.strategies.contract import Proposal, Result, SearchSpace, generator
from nas.strategies.population import Failures, Member, extra_mutations, mutated
from nas.strategies.registry import strategy


@strategy("nsga2")
class NSGA2:
    """`population`: how many survive; `start`: random trials before the first children; `crossover`: how often a child
    has two parents; `mutation`: how often the child of two parents is changed as well; `tournament`: contenders."""

    def __init__(
        self,
        space: SearchSpace,
        *,
        seed: int,
        objectives: int = 1,
        population: Annotated[int, Field(ge=2)] = 50,
        start: Annotated[int, Field(ge=2)] = 20,
        crossover: Annotated[float, Field(ge=0, le=1)] = 0.5,
        mutation: Annotated[float, Field(ge=0, le=1)] = 0.5,
        tournament: Annotated[int, Field(ge=1)] = 8,
    ) -> None:
        self.space = space
        self.seed = seed
        self.population = population
        self.start = min(start, population)
        self.crossover = crossover
        self.mutation = mutation
        self.tournament = tournament
        self.failures = Failures()
        self.members: list[Member] = []  # best first
        self._last_front: list[tuple[float, ...]] = []  # the values of the members on the worst front

    def ask(self, number: int, attempt: int = 0) -> Proposal:
        rng = generator(self.seed, number, attempt)
        if len(self.members) < self.start:
            return self.failures.avoid(lambda _: Proposal(self.space.sample(rng), "random"), attempt)
        return self.failures.avoid(lambda tried: self._child(rng, tried), attempt)

    def tell(self, result: Result) -> None:
        failed = self.failures.learn(result)
        others = [member for member in self.members if member.number != result.number]
        if not failed and result.point is not None and result.values is not None:
            if len(others) == self.population and self._hopeless(result.values):
                return
            others.append(Member(result.number, result.point, result.values))
        self._survive(others)

    def _survive(self, members: list[Member]) -> None:
        values = [member.values for member in members]
        fronts = pareto.ranks(values)
        best = np.lexsort((-pareto.crowding(values, fronts), fronts))[: self.population].tolist()
        self.members = [members[index] for index in best]
        self._last_front = [values[index] for index in best if fronts[index] == fronts[best[-1]]]

    def _hopeless(self, values: tuple[float, ...]) -> bool:
        """Whether a newcomer to a full population would be a last front of its own, and leave it at once."""
        return any(pareto.dominates(last, values) for last in self._last_front)

    def _child(self, rng: Random, tried: int) -> Proposal:
        mother = self._parent(rng)
        if rng.random() >= self.crossover:
            return Proposal(
                mutated(self.space, mother.point, rng, 1 + extra_mutations(tried)), "mutation", (mother.number,)
            )
        father = self._parent(rng)
        point = self.space.crossover(mother.point, father.point, rng)
        mutations = extra_mutations(tried) + (tried > 0 or rng.random() < self.mutation)
        point = mutated(self.space, point, rng, mutations)
        return Proposal(point, "crossover", (mother.number, father.number))

    def _parent(self, rng: Random) -> Member:
        return self.members[min(rng.randrange(len(self.members)) for _ in range(self.tournament))]
