"""Random search: draw every proposal from the space alone. The baseline that every other strategy has to beat."""

from __future__ import annotations

import random
from typing import Literal

from nas.strategies.base import StrategyBase
from nas.strategies.contract import Evaluate, Proposal, SearchSpace
from nas.strategies.registry import strategy


@strategy("random")
class Random(StrategyBase):
    """by: `choices` draws each hole uniformly when it is reached; `architectures` draws each point of the space with
    the same probability."""

    def __init__(
        self,
        space: SearchSpace,
        *,
        seed: int,
        objectives: int = 1,
        evaluate: Evaluate | None = None,
        by: Literal["choices", "architectures"] = "choices",
    ) -> None:
        super().__init__(space, seed=seed, objectives=objectives, evaluate=evaluate)
        self.by = by

    def propose(self, rng: random.Random, number: int, tried: int) -> Proposal:
        return Proposal(self.space.sample(rng, by=self.by), "random")
