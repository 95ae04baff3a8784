"""Evolution: the fastest of a few random members of a population has a child, and the oldest member dies.

Real et al. 2019, "Regularized Evolution", https://arxiv.org/abs/1802.01548. A child differs in one parameter, or takes
every parameter from one of two parents.
"""

from __future__ import annotations

from collections import deque

from tuner.space import TuningSpace
from tuner.strategies.contract import Hints, Strategy
from tuner.strategies.registry import strategy

POPULATION, TOURNAMENT, CROSSOVER, TRIES = 16, 4, 0.3, 20


@strategy("evolution")
class Evolution(Strategy):
    def __init__(
        self, space: TuningSpace, seed: int = 0, first: tuple[int, ...] = (), hints: Hints | None = None
    ) -> None:
        super().__init__(space, seed, first, hints)
        self.population: deque[int] = deque(maxlen=POPULATION)

    def propose(self) -> int:
        if len(self.population) < POPULATION // 2:
            return self.random_unknown()
        for _ in range(TRIES):
            child = self._crossed() if self.rng.random() < CROSSOVER else self._mutated(self._parent())
            if child is not None and child not in self.results:
                return child
        return self.random_unknown()

    def tell(self, number: int, milliseconds: float | None) -> None:
        super().tell(number, milliseconds)
        if milliseconds is not None:
            self.population.append(number)

    def _parent(self) -> int:
        chosen = self.rng.choice(list(self.population), size=min(TOURNAMENT, len(self.population)), replace=False)
        return int(min(chosen, key=lambda number: self.results[int(number)]))  # type: ignore[arg-type, return-value]

    def _mutated(self, parent: int) -> int | None:
        near = self.space.neighbours(parent)
        return int(self.rng.choice(near)) if near else None

    def _crossed(self) -> int | None:
        one, other = self.space.places[self._parent()], self.space.places[self._parent()]
        mask = self.rng.random(len(one)) < 0.5
        child = [int(a if taken else b) for a, b, taken in zip(one, other, mask, strict=True)]
        values = [options[place] for options, place in zip(self.space.parameters.values(), child, strict=True)]
        try:
            return self.space.number(dict(zip(self.space.parameters, values, strict=True)))
        except ValueError:  # the constraints rule it out
            return None
