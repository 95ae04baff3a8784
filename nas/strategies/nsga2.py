"""NSGA-II without generations: every result enters the population at once, and the worst member leaves it.

Deb et al. 2002, "A fast and elitist multiobjective genetic algorithm: NSGA-II", https://doi.org/10.1109/4235.996017:
tournaments, crossover, mutation, and environmental selection by front and crowding. Steady state (Durillo et al. 2009,
"On the Effect of the Steady-State Selection Scheme in Multi-Objective Genetic Algorithms",
https://doi.org/10.1007/978-3-642-01020-0_18), because workers finish one by one and must not wait for a generation.
"""

from __future__ import annotations

from random import Random
from typing import Annotated, Literal

import numpy as np

from nas import pareto
from nas.options import Field, Fraction, Trials
from nas.strategies.base import StrategyBase
from nas.strategies.contract import Evaluate, Proposal, Result, SearchSpace
from nas.strategies.population import AUTO, Member, Moves, crossed, extra_mutations, mutated, random_start
from nas.strategies.reference_directions import by_niche, reference_directions
from nas.strategies.registry import strategy


@strategy("nsga2")
class NSGA2(StrategyBase):
    """population: how many members survive. start: random trials before the first child. crossover: probability that a
    child has two parents. mutation: probability that a child of two parents is mutated too. tournament: how many
    members compete to be a parent. moves: `all` also changes all layers alike, moves layers and exchanges segments.
    niches: what keeps the members of a front apart, `crowding` or reference `directions` as in NSGA-III; `auto` takes
    directions for three objectives or more, where crowding prefers the ends of the front."""

    def __init__(
        self,
        space: SearchSpace,
        *,
        seed: int,
        objectives: int = 1,
        evaluate: Evaluate | None = None,
        trials: int | None = None,
        population: Annotated[Trials, Field(ge=2)] = 50,
        start: Literal["auto"] | Annotated[Trials, Field(ge=2)] = AUTO,
        crossover: Fraction = 0.5,
        mutation: Fraction = 0.5,
        tournament: Trials = 8,
        moves: Moves = "all",
        niches: Literal["auto", "crowding", "directions"] = AUTO,
    ) -> None:
        super().__init__(space, seed=seed, objectives=objectives, evaluate=evaluate)
        self.population = population
        self.first = min(random_start(start, trials), population)
        self.moves = moves
        self.niches = niches if niches != AUTO else "directions" if objectives > 2 else "crowding"
        self.resolved = {"start": self.first, "niches": self.niches}
        self.directions = reference_directions(objectives, population) if self.niches == "directions" else None
        self.crossover = crossover
        self.mutation = mutation
        self.tournament = tournament
        self.members: list[Member] = []  # best first
        self._numbers: set[int] = set()  # of the members
        self._last_front: list[tuple[float, ...]] = []  # the values of the members on the worst front

    def propose(self, rng: Random, number: int, tried: int) -> Proposal:
        if len(self.members) < self.first:
            return Proposal(self.space.sample(rng), "random")
        return self._child(rng, tried)

    def learn(self, result: Result, failed: bool) -> None:
        if not failed and result.point is not None and result.values is not None:
            is_full = len(self.members) == self.population and result.number not in self._numbers
            if is_full and self._hopeless(result.values):
                return
            joining = [Member(result.number, result.point, result.values)]
        else:
            joining = []
        self._survive([member for member in self.members if member.number != result.number] + joining)

    def _survive(self, members: list[Member]) -> None:
        values = [member.values for member in members]
        rows = np.array(values)
        fronts = pareto.ranks(rows)
        if self.directions is None:
            best = np.lexsort((-pareto.crowding(rows, fronts), fronts))[: self.population].tolist()
        else:
            best = by_niche(values, fronts, self.directions)[: self.population].tolist()
        self.members = [members[index] for index in best]
        self._numbers = {member.number for member in self.members}
        self._last_front = [values[index] for index in best if fronts[index] == fronts[best[-1]]]

    def _hopeless(self, values: tuple[float, ...]) -> bool:
        """Whether a new member of a full population would be the last front alone, and so would leave it at once."""
        return any(pareto.dominates(last, values) for last in self._last_front)

    def _child(self, rng: Random, tried: int) -> Proposal:
        mother = self._parent(rng)
        if rng.random() >= self.crossover:
            return Proposal(
                mutated(self.space, mother.point, rng, 1 + extra_mutations(tried), self.moves),
                "mutation",
                (mother.number,),
            )
        father = self._parent(rng)
        point = crossed(self.space, mother.point, father.point, rng, self.moves)
        mutations = extra_mutations(tried) + (tried > 0 or rng.random() < self.mutation)
        point = mutated(self.space, point, rng, mutations, self.moves)
        return Proposal(point, "crossover", (mother.number, father.number))

    def _parent(self, rng: Random) -> Member:
        return self.members[min(rng.randrange(len(self.members)) for _ in range(self.tournament))]
