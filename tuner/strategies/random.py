"""Random search without replacement: what every other strategy must beat."""

from tuner.strategies.contract import Strategy


class Random(Strategy):
    def propose(self) -> int:
        return self.random_unknown()
