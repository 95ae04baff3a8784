"""A baseline for a model: the member of a family with the same parameters, training FLOPs, state or latency."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from searchspace.cost import Cost, Shape
from searchspace.errors import SpaceError, nearest
from searchspace.matching import families
from searchspace.matching.search import NEAR, SHAPES, Search
from searchspace.model.architecture import Architecture
from searchspace.model.build import cost

QUANTITIES: dict[str, tuple[str, Callable[[Cost], float]]] = {
    "parameters": ("parameters", lambda each: each.parameters),
    "flops": ("training FLOPs", lambda each: each.expected_training_flops),
    "state": ("bytes of state", lambda each: each.state_bytes),
}
LATENCY = "latency"
MATCHES = (*QUANTITIES, LATENCY)
LARGER = 50  # times the winner's parameters: the largest baseline that has the winner's state
MEASURED = 8  # most models whose latency is measured
LEAP = 8.0  # largest factor by which the FLOPs change from one measured model to the next


@dataclass(frozen=True)
class Matched:
    """A baseline. target: the winner's cost in what `match` names; reached: the baseline's."""

    architecture: Architecture
    target: float
    reached: float
    match: str = "parameters"

    @property
    def error(self) -> float:
        """The relative difference: 0.02 if the baseline has 2% more than the winner."""
        return self.reached / self.target - 1

    @property
    def note(self) -> str:
        """How far the baseline is from the winner, if that is more than 3%; "" if it is near."""
        if abs(self.error) <= NEAR:
            return ""
        if self.match == LATENCY:
            return f"{abs(self.error):.0%} {'slower' if self.error > 0 else 'faster'} than the winner"
        return (
            f"{abs(self.error):.0%} {'more' if self.error > 0 else 'fewer'} {QUANTITIES[self.match][0]} than the winner"
        )


def matched(
    family: str | Path | Architecture,
    winner: Architecture,
    *,
    match: str = "parameters",
    shape: str = "usual",
    length: int | Shape,
    measure: Callable[[Architecture], float] | None = None,
) -> Matched:
    """The model of `family` that is as large, as expensive or as fast as `winner`, to about 3% if the family allows it.

    family: `transformer`, `transformer_modern`, `primer`, another name of the zoo, a file, or an architecture. It gets
    vocabulary, features, classes and tying of the winner. A model that cannot be scaled stays as it is.
    match: parameters, flops (training FLOPs of a sequence), state (bytes after a sequence) or latency.
    shape: deep, wide or usual; see `SHAPES`.
    length: of the sequence, or its whole `Shape`. The winner's halting blocks count at the depth that the shape has.
    measure: the latency of a model. It is called for the winner and for at most `MEASURED` models.

    The result is deterministic if `measure` is. Raises SpaceError if a name is unknown, the family has no model of the
    winner's kind, the winner has nothing to match (an encoder keeps no state), or `measure` is missing.
    """
    _check(match, MATCHES, "A baseline is matched in")
    _check(shape, SHAPES, "The shape of a baseline is")
    given = families.read(family, winner)
    at = length if isinstance(length, Shape) else Shape(length=length)
    if match != LATENCY:
        return _computed(given, winner, match, shape, at)
    if measure is None:
        raise SpaceError("match: latency needs a function `measure` that gives the latency of an architecture.")
    return _Measured(given, winner, shape, at, measure).matched()


def _check(name: str, known: Collection[str], what: str) -> None:
    if name not in known:
        raise SpaceError(f"{what} {', '.join(known)}, not in {name!r}.{nearest(name, known)}")


def _computed(given: str | Architecture, winner: Architecture, match: str, shape: str, at: Shape) -> Matched:
    target = _winner(winner, match, at)
    found = _closest(given, winner, match, shape, at, target)
    if match == "state":
        _check_trainable(found, winner, at)
    return Matched(found, target, _value(found, match, at), match)


def _check_trainable(found: Architecture, winner: Architecture, at: Shape) -> None:
    """Raise SpaceError if a model has the winner's state only because it is many times larger.

    A recurrent model with the state of an attention model is such a model: training it would need all memory.
    """
    ratio = cost(found, at).parameters / cost(winner, at).parameters
    if ratio > LARGER:
        raise SpaceError(f"With the winner's state it would have {ratio:,.0f} times the winner's parameters.")


def _winner(winner: Architecture, match: str, at: Shape) -> float:
    quantity, value = QUANTITIES[match]
    target = value(cost(winner, at))
    if target <= 0:
        raise SpaceError(f"The winner, a model of kind {winner.root.name}, has no {quantity} to match.")
    return target


def _value(architecture: Architecture, match: str, at: Shape) -> float:
    """The cost of a baseline. The measured depth of halting blocks is the winner's and does not hold for it."""
    return QUANTITIES[match][1](cost(architecture, replace(at, halting_steps=None)))


@lru_cache(maxsize=256)
def _closest(
    given: str | Architecture, winner: Architecture, match: str, shape: str, at: Shape, target: float
) -> Architecture:
    search = Search(families.family(given, winner), lambda each: _value(each, match, at))
    return search.closest(target, shape, by_size=match == "parameters")


class _Measured:
    """Matches the latency. It looks for the training FLOPs with which the family is as fast as the winner."""

    def __init__(
        self,
        given: str | Architecture,
        winner: Architecture,
        shape: str,
        at: Shape,
        measure: Callable[[Architecture], float],
    ):
        self.winner, self.shape, self.at, self.measure = winner, shape, at, measure
        self.search = Search(families.family(given, winner), lambda each: _value(each, "flops", at))
        self.known: dict[Architecture, float] = {}

    def matched(self) -> Matched:
        """The nearest of the measured models."""
        target = self._latency(self.winner)
        flops = _winner(self.winner, "flops", self.at)
        faster: tuple[float, float] | None = (
            None  # (FLOPs, latency) of the slowest model that is faster than the winner
        )
        slower: tuple[float, float] | None = None
        found: dict[Architecture, float] = {}
        while len(found) < MEASURED:
            model = self.search.closest(flops, self.shape)
            if model in found:  # the family has no model between those that were measured
                break
            found[model] = self._latency(model)
            if abs(found[model] / target - 1) <= NEAR:
                break
            if found[model] < target:
                faster = (flops, found[model])
            else:
                slower = (flops, found[model])
            flops = _next(flops, found[model], target, faster, slower)
        best = min(found, key=lambda each: (abs(math.log(found[each] / target)), each.hash))
        return Matched(best, target, found[best], LATENCY)

    def _latency(self, model: Architecture) -> float:
        if model not in self.known:
            seconds = self.measure(model)
            if not (math.isfinite(seconds) and seconds > 0):
                raise SpaceError(f"measure must give a latency above 0, but gave {seconds} for {model}.")
            self.known[model] = seconds
        return self.known[model]


def _next(
    flops: float,
    latency: float,
    target: float,
    faster: tuple[float, float] | None,
    slower: tuple[float, float] | None,
) -> float:
    """The FLOPs to try: in proportion to the latency, or between the nearest models on both sides."""
    if faster is None or slower is None:
        return flops * min(max(target / latency, 1 / LEAP), LEAP)
    share = math.log(target / faster[1]) / math.log(slower[1] / faster[1])
    share = min(max(share, 0.1), 0.9)
    return faster[0] * (slower[0] / faster[0]) ** share
