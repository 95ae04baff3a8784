"""The contract of a strategy: it proposes points and learns from their results.

A strategy is pure. A proposal depends on the space, the seed, the number of the trial, and the calls of `start` and
`tell` so far, in order. So a strategy is rebuilt after a crash by repeating what the study database recorded.
`nas.strategies.base` implements what all strategies share.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from nas.errors import NasError

if TYPE_CHECKING:
    import numpy as np

    from searchspace.space.point import Point
    from searchspace.tree import Hole


class NothingLeft(NasError):
    """The strategy finds no point that was not tried before or is not known to fail."""


class SearchSpace(Protocol):
    """What strategies need of a space. `searchspace.space.space.Space` implements it."""

    @property
    def dimensions(self) -> Mapping[str, Hole]:
        """Every hole that can become active, by path."""

    def sample(self, rng: random.Random, by: Literal["choices", "architectures"] = "choices") -> Point:
        """A random feasible point. Raises SpaceError if many samples in a row are infeasible."""

    def realise(self, choose: Callable[[str, Any], Any]) -> Point:
        """The point that `choose(path, hole)` fills. Raises SpaceError for a value that does not fit."""

    def mutate(self, point: Point, rng: random.Random) -> Point:
        """`point` with one hole filled differently."""

    def crossover(self, a: Point, b: Point, rng: random.Random) -> Point:
        """A point whose holes are filled as in `a` or as in `b`."""

    def neighbours(self, point: Point, rng: random.Random) -> Iterator[Point]:
        """The feasible points that differ from `point` in one hole. `rng` fills holes that the change opens."""

    def encode(self, point: Point) -> np.ndarray:
        """`point` as a vector of float64, of the same length for every point: [columns]."""


Evaluate = Callable[["Point"], tuple[float | None, ...]]
"""The objectives of a point, in order and all minimised, without training it. None for an objective that needs
training or a probe, and for one that has no value for this architecture. A strategy may call it at any time."""


@dataclass(frozen=True)
class Proposal:
    """A point to try, the operator that made it and the numbers of its parents' trials, which are earlier ones."""

    point: Point
    operator: str
    parents: tuple[int, ...] = ()


@dataclass(frozen=True)
class Started:
    """Trial `number` was started. It is pending until `tell` gets its result. `point` is None outside the space."""

    number: int
    point: Point | None


@dataclass(frozen=True)
class Result:
    """The end of a unit of trial `number`: `values`, all minimised, after `steps` of training in all.

    `values` is None if the unit failed; `failure` is then its kind, a value of `nas.work.FailureKind`. A later rung of
    the same trial replaces an earlier one. `point` is None for a trial outside the space.
    """

    number: int
    rung: int
    steps: int
    point: Point | None
    values: tuple[float, ...] | None
    failure: str | None = None


class Strategy(Protocol):
    """Constructed as `cls(space, seed=..., objectives=<count>, evaluate=None, **options)`.

    One with a parameter `trials` is given the planned number of trials when a study is created, and None later. An
    attribute `resolved`, if there is one, has the options that follow from it where the search file leaves them to it
    (`auto` or null). The study keeps them, so a larger budget changes no proposal.
    """

    def ask(self, number: int, count: int = 1, attempt: int = 0) -> list[Proposal]:
        """Proposals for the trials `number`, `number + 1`, ...: distinct, and none that is known or pending.

        count: how many; fewer come back if the space holds fewer. attempt: higher after an earlier proposal for the
        same trial was turned down. Asking changes nothing. Raises NothingLeft if there is not one."""

    def start(self, started: Started) -> None:
        """A trial was started: its point is pending until `tell` gets its result, and known from then on."""

    def tell(self, result: Result) -> None:
        """A unit ended."""


def generator(seed: int, number: int, attempt: int) -> random.Random:
    """The random numbers of one proposal, the same on every machine and after every restart."""
    text = f"{seed}/{number}/{attempt}".encode()
    return random.Random(int.from_bytes(hashlib.sha256(text).digest()[:8], "big"))
