"""Sums and products that count the ways to fill a space, and draw one of them with every way equally likely.

A circuit is built from below and counts as it is built. Parts that are filled independently multiply, alternatives add.
Ties couple distant places, so a circuit keeps a tally {tied holes that were reached: ways}; a reached hole's own ways
are multiplied in once, by whoever reads the tally.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from searchspace.errors import SpaceError
from searchspace.language.holes import draw, values
from searchspace.tree import Hole, Scalar

Reached = frozenset[str]
Tally = dict[Reached, int]
NOTHING: Reached = frozenset()
MAX_TERMS = 4096  # of a tally; more means very many ties in branches that come and go independently


@dataclass
class Leaf:
    """A hole with nothing inside; a real interval counts as one way."""

    path: str
    hole: Hole

    def __post_init__(self) -> None:
        known = values(self.hole)
        self.tally: Tally = {NOTHING: 1 if known is None else len(known)}

    def draw(self, reached: Reached, rng: random.Random, choices: dict[str, Scalar]) -> None:
        known = values(self.hole)
        choices[self.path] = draw(self.hole, rng) if known is None else known[rng.randrange(len(known))]


@dataclass
class Fixed:
    """A hole at one of its values."""

    path: str
    value: Scalar
    tally: Tally = field(default_factory=lambda: {NOTHING: 1})

    def draw(self, reached: Reached, rng: random.Random, choices: dict[str, Scalar]) -> None:
        choices[self.path] = self.value


@dataclass
class Tied:
    """A place that reaches a tied hole, whose own ways are counted once for all its places."""

    key: str

    def __post_init__(self) -> None:
        self.tally: Tally = {frozenset([self.key]): 1}

    def draw(self, reached: Reached, rng: random.Random, choices: dict[str, Scalar]) -> None:
        return None


class Product:
    """Parts that are all filled."""

    def __init__(self, parts: Iterable[Circuit]):
        self.parts: list[Circuit] = [part for part in parts if not (isinstance(part, Product) and not part.parts)]
        self.prefixes: list[Tally] = [{NOTHING: 1}]  # the tally of the first k parts
        for part in self.parts:
            self.prefixes.append(_joined(self.prefixes[-1], part.tally))
        self.tally: Tally = self.prefixes[-1]

    def draw(self, reached: Reached, rng: random.Random, choices: dict[str, Scalar]) -> None:
        drawn = []
        for part, prefix in zip(reversed(self.parts), reversed(self.prefixes[:-1])):
            pairs = {
                (before, own): prefix[before] * part.tally[own]
                for before in prefix
                for own in part.tally
                if before | own == reached
            }
            reached, own = pick(pairs, rng)
            drawn.append((part, own))
        for part, own in reversed(drawn):
            part.draw(own, rng, choices)


class Sum:
    """One of several alternatives, which differ in what they choose."""

    def __init__(self, alternatives: Iterable[Circuit]):
        self.alternatives = list(alternatives)
        self.tally: Tally = {}
        for alternative in self.alternatives:
            for reached, ways in alternative.tally.items():
                self.tally[reached] = self.tally.get(reached, 0) + ways
        _check_terms(self.tally)

    def draw(self, reached: Reached, rng: random.Random, choices: dict[str, Scalar]) -> None:
        ways = {i: alternative.tally.get(reached, 0) for i, alternative in enumerate(self.alternatives)}
        self.alternatives[pick(ways, rng)].draw(reached, rng, choices)


Circuit = Leaf | Fixed | Tied | Product | Sum


def pick(weights: dict[Any, int], rng: random.Random) -> Any:
    """A key, with a chance in proportion to its weight; exact for integers of any size."""
    if len(weights) == 1:
        return next(iter(weights))
    rest = rng.randrange(sum(weights.values()))
    for key, weight in weights.items():
        rest -= weight
        if rest < 0:
            return key
    raise AssertionError("a draw beyond the total weight")


def _joined(one: Tally, other: Tally) -> Tally:
    tally: Tally = {}
    for a, b in itertools.product(one, other):
        tally[a | b] = tally.get(a | b, 0) + one[a] * other[b]
    _check_terms(tally)
    return tally


def _check_terms(tally: Tally) -> None:
    if len(tally) > MAX_TERMS:
        raise SpaceError(
            "The ties of this space are too entangled to count it: too many stand in branches of their own."
        )
