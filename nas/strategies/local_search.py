"""Local search: take a good point and propose its neighbours, one after the other; the simplest search that learns.

White et al. 2021, "Exploring the Loss Landscape in Neural Architecture Search", https://arxiv.org/abs/2005.02960. With
several objectives each proposal starts from a random point of the front (Pareto local search, Paquete et al. 2004).
Workers finish one by one, so every result that joins the front is a start at once.
"""

from __future__ import annotations

from random import Random

import numpy as np

from nas import pareto
from nas.options import Fraction, Start, Trials
from nas.strategies.base import StrategyBase
from nas.strategies.contract import Evaluate, Proposal, Result, SearchSpace
from nas.strategies.population import AUTO, Member, extra_mutations, mutated, random_start
from nas.strategies.registry import strategy


@strategy("local_search")
class LocalSearch(StrategyBase):
    """start: random trials before the first neighbour. restart: probability that a proposal is random. size: starts
    that are kept at most, the least crowded of the front."""

    def __init__(
        self,
        space: SearchSpace,
        *,
        seed: int,
        objectives: int = 1,
        evaluate: Evaluate | None = None,
        trials: int | None = None,
        start: Start = AUTO,
        restart: Fraction = 0.05,
        size: Trials = 30,
    ) -> None:
        super().__init__(space, seed=seed, objectives=objectives, evaluate=evaluate)
        self.first = random_start(start, trials)
        self.resolved = {"start": self.first}
        self.restart, self.size = restart, size
        self.successes = 0
        self.front: list[Member] = []
        self._stays = False  # whether the order of the front stays as it is when it is computed again

    def propose(self, rng: Random, number: int, tried: int) -> Proposal:
        if self.successes < self.first or not self.front or rng.random() < self.restart:
            return Proposal(self.space.sample(rng), "random")
        start = rng.choice(self.front)
        return Proposal(mutated(self.space, start.point, rng, 1 + extra_mutations(tried)), "neighbour", (start.number,))

    def learn(self, result: Result, failed: bool) -> None:
        others = [member for member in self.front if member.number != result.number]
        unchanged = self._stays and len(others) == len(self.front)
        if not failed and result.point is not None and result.values is not None:
            self.successes += 1
            unchanged = unchanged and any(pareto.dominates(member.values, result.values) for member in others)
            others.append(Member(result.number, result.point, result.values))
        if unchanged:
            return
        if not others:
            self.front, self._stays = [], False
            return
        values = np.array([member.values for member in others])
        best = pareto.front(values)
        order = best[np.argsort(-pareto.crowding(values[best]), kind="stable")][: self.size]
        self._stays = len(order) == len(best) and bool((order == np.arange(len(order))).all())
        self.front = [others[index] for index in order.tolist()]
