"""Local search from random starts: move to the first faster neighbour; if there is none, start somewhere else.

A neighbour differs in one parameter. Neighbours are tried in a random order.
"""

from __future__ import annotations

from tuner.space import TuningSpace
from tuner.strategies.contract import Hints, Strategy
from tuner.strategies.registry import strategy


@strategy("local_search")
class LocalSearch(Strategy):
    def __init__(
        self, space: TuningSpace, seed: int = 0, first: tuple[int, ...] = (), hints: Hints | None = None
    ) -> None:
        super().__init__(space, seed, first, hints)
        self.centre: int | None = None
        self.around: list[int] = []

    def propose(self) -> int:
        while True:
            while self.around:
                if (number := self.around.pop()) not in self.results:
                    return number
            if self.centre is not None and self._exhausted():
                self.centre = None
            if self.centre is None:
                self.centre = self.random_unknown()
                return self.centre

    def tell(self, number: int, milliseconds: float | None) -> None:
        super().tell(number, milliseconds)
        if number == self.centre or self.centre is None or self._better(number, self.centre):
            self.centre = number
            near = self.space.neighbours(number)
            self.around = [near[i] for i in self.rng.permutation(len(near))]

    def _exhausted(self) -> bool:
        return not self.around

    def _better(self, number: int, than: int) -> bool:
        one, other = self.results[number], self.results.get(than)
        return one is not None and (other is None or one < other)
