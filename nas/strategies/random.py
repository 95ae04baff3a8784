"""Random search: every proposal is drawn from the space alone. The arm that every other strategy has to beat."""

from __future__ import annotations

from typing import Literal

from nas.strategies.contract import Proposal, Result, SearchSpace, generator
from nas.strategies.population import Failures
from nas.strategies.registry import strategy


@strategy("random")
class Random:
    """`by` choices: every hole alike; by architectures: every architecture alike, whatever branch it lies in."""

    def __init__(
        self, space: SearchSpace, *, seed: int, objectives: int = 1, by: Literal["choices", "architectures"] = "choices"
    ) -> None:
        self.space = space
        self.seed = seed
        self.by = by
        self.failures = Failures()

    def ask(self, number: int, attempt: int = 0) -> Proposal:
        rng = generator(self.seed, number, attempt)
        return self.failures.avoid(lambda _: Proposal(self.space.sample(rng, by=self.by), "random"), attempt)

    def tell(self, result: Result) -> None:
        self.failures.learn(result)
