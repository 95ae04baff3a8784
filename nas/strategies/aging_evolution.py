"""Aging evolution: the best of a random sample gets a mutated child, and the oldest member leaves, however good it is.

Real et al. 2019, "Regularized Evolution for Image Classifier Architecture Search", https://arxiv.org/abs/1802.01548,
algorithm 1. With several objectives the best is the least crowded one of the lowest Pareto front. The first children
come before the population is full: in a budget of some hundred trials, a hundred random ones would be a waste.
"""

from __future__ import annotations

from collections import OrderedDict
from random import Random

from nas.options import Start, Trials
from nas.strategies.base import StrategyBase
from nas.strategies.contract import Evaluate, Proposal, Result, SearchSpace
from nas.strategies.population import AUTO, Member, Moves, best_first, extra_mutations, mutated, random_start
from nas.strategies.registry import strategy

SHARE, FEWEST = 4, 5  # a quarter of a small population competes to be the parent, and at least FEWEST members


@strategy("aging_evolution")
class AgingEvolution(StrategyBase):
    """population: how many trials are members. sample: how many of them compete to be the parent. start: random trials
    before the first child. moves: `all` also changes all layers alike and moves layers.
    A quarter of a small population competes, because otherwise nearly all first children would have one of two parents.
    """

    def __init__(
        self,
        space: SearchSpace,
        *,
        seed: int,
        objectives: int = 1,
        evaluate: Evaluate | None = None,
        trials: int | None = None,
        population: Trials = 100,
        sample: Trials = 20,
        start: Start = AUTO,
        moves: Moves = "all",
    ) -> None:
        super().__init__(space, seed=seed, objectives=objectives, evaluate=evaluate)
        self.population = population
        self.sample = sample
        self.first = min(random_start(start, trials), population)
        self.moves = moves
        self.resolved = {"start": self.first}
        self.members: OrderedDict[int, Member] = OrderedDict()  # by number, in the order in which they finished
        self._ranked: list[Member] | None = None  # best first; None if it has to be computed again

    def propose(self, rng: Random, number: int, tried: int) -> Proposal:
        if len(self.members) < self.first:
            return Proposal(self.space.sample(rng), "random")
        return self._child(rng, tried)

    def learn(self, result: Result, failed: bool) -> None:
        if failed:
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
        parent = self._ranked[self._winner(rng, len(self._ranked))]
        point = mutated(self.space, parent.point, rng, 1 + extra_mutations(tried), self.moves)
        return Proposal(point, "mutation", (parent.number,))

    def _winner(self, rng: Random, count: int) -> int:
        """The place of the parent among the `count` members, best first."""
        compete = min(self.sample, max(FEWEST, count // SHARE))
        return min(rng.sample(range(count), min(compete, count)))
