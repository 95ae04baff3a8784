"""Random search without replacement: the baseline of every other strategy."""

from tuner.strategies.contract import Strategy
from tuner.strategies.registry import strategy


@strategy("random")
class Random(Strategy):
    def propose(self) -> int:
        return self.random_unknown()
