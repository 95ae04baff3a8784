"""Simulated annealing: a walk over neighbours that accepts slower ones less and less often.

Kirkpatrick, Gelatt & Vecchi 1983, https://doi.org/10.1126/science.220.4598.671. The difference of two
configurations is that of the logarithms of their times, so that it means the same on every device.
"""

from __future__ import annotations

import math

from tuner.space import TuningSpace
from tuner.strategies.contract import Hints, Strategy
from tuner.strategies.registry import strategy

WARM, COLD, COOLING = 0.5, 0.005, 0.97  # temperatures, and their ratio from one step to the next
PATIENCE = 30  # known neighbours in a row after which the walk starts somewhere else


@strategy("annealing")
class Annealing(Strategy):
    def __init__(
        self, space: TuningSpace, seed: int = 0, first: tuple[int, ...] = (), hints: Hints | None = None
    ) -> None:
        super().__init__(space, seed, first, hints)
        self.place: int | None = None
        self.temperature = WARM

    def propose(self) -> int:
        for _ in range(PATIENCE):
            if self.place is None or self.temperature < COLD:
                break
            near = self.space.neighbours(self.place)
            if not near:
                break
            number = int(self.rng.choice(near))
            if number not in self.results:
                return number
            self._consider(number)
        self.place, self.temperature = None, WARM
        return self.random_unknown()

    def tell(self, number: int, milliseconds: float | None) -> None:
        super().tell(number, milliseconds)
        self._consider(number)

    def _consider(self, number: int) -> None:
        """Move there, or not."""
        self.temperature *= COOLING
        new = self.results[number]
        old = None if self.place is None else self.results.get(self.place)
        if new is None:
            return
        if old is None or self.rng.random() < math.exp(min(0.0, math.log(old / new)) / self.temperature):
            self.place = number
