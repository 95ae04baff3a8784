"""Schedulers beyond those that are registered: they show what the contract can express."""

from statistics import fmean

import pytest

from nas.schedulers.contract import Level, Promotion
from nas.schedulers.registry import make


class Hyperband:
    """Li et al. 2018, https://jmlr.org/papers/v18/16-558.html: brackets of halving that start with different steps."""

    def __init__(self, steps=27, factor=3):
        every = [steps // factor**power for power in (3, 2, 1, 0)]
        self.brackets = [make("halving", rungs=every[first:], factor=factor) for first in range(3)]

    def of(self, number):
        return self.brackets[number % len(self.brackets)]

    def start(self, number):
        return self.of(number).start(number)

    def tell(self, number, rung, values, steps):
        self.of(number).tell(number, rung, values, steps)

    def started(self, number, rung, steps):
        self.of(number).started(number, rung, steps)

    def promotion(self):
        return next(filter(None, (bracket.promotion() for bracket in self.brackets)), None)

    def is_last(self, number, rung, steps):
        return self.of(number).is_last(number, rung, steps)

    def horizon(self, number):
        return self.of(number).horizon(number)

    def forecast(self, trials):
        shares = [len(range(first, trials, len(self.brackets))) for first in range(len(self.brackets))]
        levels = [level for bracket, share in zip(self.brackets, shares) if share for level in bracket.forecast(share)]
        return tuple(sorted(levels, key=lambda level: (level.steps, level.start)))


class Hurdles:
    """So et al. 2019, "The Evolved Transformer", https://arxiv.org/abs/1901.11117: progressive dynamic hurdles.

    After every `wait` finished trials the mean of the best level so far is the next hurdle. A trial that is better than
    the hurdle of its level trains further: how far is known only when the hurdle exists, and grows with their number.
    """

    def __init__(self, first=4, wait=3, most=3):
        self.first, self.wait, self.most = first, wait, most
        self.hurdles = []  # (level it belongs to, value)
        self.results = {}  # trial -> (rung, steps, value), its newest
        self.seen = {}  # level -> values
        self.running = set()

    def _level(self, steps):
        return steps // self.first - 1

    def start(self, number):
        return self.first

    def tell(self, number, rung, values, steps):
        self.running.discard(number)
        if values is None:
            self.results.pop(number, None)
            return
        level, value = self._level(steps), values[0]
        self.results[number] = rung, steps, value
        seen = self.seen.setdefault(level, [])
        seen.append(value)
        if level == len(self.hurdles) < self.most and len(seen) == self.wait:
            self.hurdles.append(fmean(seen))

    def started(self, number, rung, steps):
        self.running.add(number)

    def promotion(self):
        for number, (rung, steps, value) in sorted(self.results.items()):
            passed = self._level(steps) < len(self.hurdles) and value < self.hurdles[self._level(steps)]
            if passed and number not in self.running:
                return Promotion(number, rung + 1, steps + self.first)
        return None

    def is_last(self, number, rung, steps):
        return self._level(steps) == self.most

    def horizon(self, number):
        return self.first * (self.most + 1)

    def forecast(self, trials):
        ends = [self.first * (level + 1) for level in range(self.most + 1)]
        return tuple(Level(max(1, trials // 2**level), end - self.first, end) for level, end in enumerate(ends))


@pytest.fixture(params=["full", "halving", "one rung", "Hyperband", "Hurdles"])
def new(request):
    """Makes the same scheduler again each time it is called."""
    return {
        "full": lambda: make("full", steps=9),
        "halving": lambda: make("halving", rungs=[2, 6, 18], factor=2),
        "one rung": lambda: make("halving", rungs=[7]),
        "Hyperband": Hyperband,
        "Hurdles": Hurdles,
    }[request.param]
