"""Sums and products that count the ways to fill a space, and draw one of them uniformly.

A circuit is built bottom-up and counts while it is built. Independent parts multiply, alternatives add. Ties connect
distant places. So a circuit has a tally {tied holes that were reached: number of ways}. The reader of the tally
multiplies by the ways of each reached hole once.
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
MAX_TERMS = 4096  # the largest tally; more means that very many ties are in independent branches


@dataclass
class Leaf:
    """A hole without holes inside. A real interval counts as one way."""

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
    """A hole with one fixed value."""

    path: str
    value: Scalar
    tally: Tally = field(default_factory=lambda: {NOTHING: 1})

    def draw(self, reached: Reached, rng: random.Random, choices: dict[str, Scalar]) -> None:
        choices[self.path] = self.value


@dataclass
class Tied:
    """A place that reaches a tied hole. The ways of that hole are counted once for all its places."""

    key: str

    def __post_init__(self) -> None:
        self.tally: Tally = {frozenset([self.key]): 1}

    def draw(self, reached: Reached, rng: random.Random, choices: dict[str, Scalar]) -> None:
        return None


class Product:
    """Parts that are all filled, independently."""

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
    """One of several alternatives."""

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
    """A random key with probability proportional to its weight. It is exact for integers of any size."""
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
        raise SpaceError("This space cannot be counted: too many of its ties are in independent branches.")
