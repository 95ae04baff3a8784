"""A toy space of bit strings, which strategies search as they do a real one."""

import random
from dataclasses import dataclass

import pytest

from nas.strategies.contract import Result
from searchspace.tree import Choice

BIT = Choice((False, True))


@dataclass(frozen=True)
class Bits:
    hash: str


@dataclass(frozen=True)
class BitsPoint:
    choices: dict
    architecture: Bits


class BitSpace:
    """All strings of `length` bits."""

    def __init__(self, length=12):
        self.length = length

    def realise(self, choose):
        return self.point([choose(f"bit{index}", BIT) for index in range(self.length)])

    def sample(self, rng: random.Random, by="choices"):
        return self.point([rng.random() < 0.5 for _ in range(self.length)])

    def mutate(self, point, rng):
        bits, index = list(point.choices.values()), rng.randrange(self.length)
        bits[index] = not bits[index]
        return self.point(bits)

    def crossover(self, a, b, rng):
        return self.point([rng.choice(pair) for pair in zip(a.choices.values(), b.choices.values())])

    def point(self, bits):
        text = "".join("01"[bit] for bit in bits)
        return BitsPoint({f"bit{index}": bool(bit) for index, bit in enumerate(bits)}, Bits(text))


def ones(point):
    """One objective, a bumpy hill: the ones count, and so does having them side by side; 0 is best."""
    text = point.architecture.hash
    return (float(text.count("0") + text.count("10")),)


def leading_and_trailing(point):
    """Two objectives at odds: zeros wanted at the front, ones at the back, each paid for by the length of the other."""
    text = point.architecture.hash
    zeros, ones_ = len(text) - len(text.lstrip("0")), len(text) - len(text.rstrip("1"))
    return (float(len(text) - zeros), float(len(text) - ones_))


def search(strategy, score, budget, fails=lambda point: False):
    """The results of a search as the loop runs it: no architecture twice, every result told at once."""
    seen, results = set(), []
    for number in range(budget):
        attempt = 0
        while (point := strategy.ask(number, 1, attempt)[0].point).architecture.hash in seen:
            attempt += 1
        seen.add(point.architecture.hash)
        results.append(Result(number, 0, 1, point, None if fails(point) else score(point)))
        strategy.tell(results[-1])
    return results


@pytest.fixture
def space():
    return BitSpace()


@pytest.fixture(scope="session")
def toy():
    """The toy's parts by name: BitSpace, ones, leading_and_trailing, search."""
    from types import SimpleNamespace

    return SimpleNamespace(BitSpace=BitSpace, ones=ones, leading_and_trailing=leading_and_trailing, search=search)
