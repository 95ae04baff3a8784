"""The contract of a strategy: pure ask and tell.

A proposal depends on the space, the seed, the number of the trial and the results told so far, on nothing else. So a
strategy is rebuilt after a crash by telling it again what the store holds, in the order in which it was recorded.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from nas.errors import NasError

if TYPE_CHECKING:
    from searchspace.space.space import Point


class NothingLeft(NasError):
    """Everything that the strategy can reach is known to fail."""


class SearchSpace(Protocol):
    """What strategies need of a space; `searchspace.space.space` and `searchspace.space.variation` have it."""

    def sample(self, rng: random.Random, by: Literal["choices", "architectures"] = "choices") -> Point: ...

    def realise(self, choose: Callable[[str, Any], Any]) -> Point: ...

    def mutate(self, point: Point, rng: random.Random) -> Point: ...

    def crossover(self, a: Point, b: Point, rng: random.Random) -> Point: ...


@dataclass(frozen=True)
class Proposal:
    """A point to try, the operator that made it and the numbers of the trials it came from."""

    point: Point
    operator: str
    parents: tuple[int, ...] = ()


@dataclass(frozen=True)
class Result:
    """What became of a trial at a rung: `values`, every one to be minimised, or None when it failed.

    A later rung of the same trial replaces an earlier one. `point` is None for a trial outside the space.
    """

    number: int
    rung: int
    point: Point | None
    values: tuple[float, ...] | None


class Strategy(Protocol):
    """Constructed as `cls(space, seed=..., objectives=..., **options)`."""

    def ask(self, number: int, attempt: int = 0) -> Proposal:
        """The proposal for trial `number`; a higher `attempt` after an earlier one was known or not allowed."""

    def tell(self, result: Result) -> None: ...


def generator(seed: int, number: int, attempt: int) -> random.Random:
    """The random numbers of one proposal, the same on every machine and after every restart."""
    text = f"{seed}/{number}/{attempt}".encode()
    return random.Random(int.from_bytes(hashlib.sha256(text).digest()[:8], "big"))
