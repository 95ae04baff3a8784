"""The model of a family whose cost is nearest to a target, in a given shape.

Costs grow linearly with the depth and about quadratically with the width. So they are computed at three widths and
estimated at all others. The models that seem best are then computed exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from searchspace.errors import SpaceError
from searchspace.matching.families import Family
from searchspace.model.architecture import Architecture

NEAR = 0.03  # relative difference in cost below which the proportions decide
DOUBT = 0.02  # error of an estimate
STEP = 8  # widths are multiples of this number, which suits the matrix units of GPUs
FINER = (STEP, 4, 2)  # for `deep` and `wide`, whose depth is given: the first step that comes near enough is taken
NARROWEST = 8
LOOSE = 0.08  # for small models: few of them are near
BANDS = ((1.5, NEAR), (2.5, NEAR), (2.5, LOOSE))
"""(factor between a depth and the depth of its shape, relative error): the first with a candidate is taken."""
APART = 2  # `deep` has at least this many times the layers of `wide`
EXACT = 8  # candidates that are computed exactly
WIDEST = 2**16

SHAPES = {"deep": 1.0, "wide": 0.42, "usual": 1.0}
"""The depth of each shape in usual depths. At equal size, 0.42 of the usual depth is half the number of layers.

`deep` and `wide` prefer their depth and take finer widths where they must. `usual` has widths that are multiples of 8
and prefers the nearest size: it is the baseline of finals before there were shapes, which had equal parameters.
"""


@dataclass(frozen=True)
class _Candidate:
    width: int
    depth: int
    error: float  # relative error of the cost
    ratio: float  # depth / the depth of the shape
    oddness: float  # of the heads

    @property
    def badness(self) -> tuple[float, int]:
        """2% of cost count as much as a factor e of depth. The narrower candidate wins a tie."""
        return self.error / 0.02 + abs(math.log(self.ratio)) + self.oddness, self.width

    @property
    def compromise(self) -> tuple[float, int]:
        """As `badness`, but 10% of cost count as much as a factor e of depth."""
        return self.error / 0.1 + abs(math.log(self.ratio)) + self.oddness, self.width

    def within(self, band: float, error: float) -> bool:
        """Whether its depth suits its shape and its cost is near."""
        return self.error <= error and 1 / band <= self.ratio <= band


@dataclass
class Search:
    """Looks for models of `family` by their cost, `value`."""

    family: Family
    value: Callable[[Architecture], float]
    _known: dict[int, tuple[float, float] | None] = field(default_factory=dict)

    def closest(self, target: float, shape: str, *, by_size: bool = False) -> Architecture:
        """The model with a cost of about `target`. Raises SpaceError if no width fits the family.

        by_size: `usual` prefers the nearest size even if that has far too many layers.
        """
        if shape == "usual":
            best = self._nearest(list(self._estimated(target, SHAPES[shape], STEP)), target, SHAPES[shape])
            if not by_size and not best.within(BANDS[-1][0], math.inf):  # such as 12 layers of width 24
                best = self._shaped(target, shape)
        elif shape == "wide":
            best = self._shaped(target, shape)
        else:
            best = self._deep(target, self._shaped(target, "wide"))
        return self.family.build(best.width, best.depth)

    def _deep(self, target: float, wide: _Candidate) -> _Candidate:
        """The deep candidate; it has at least twice the layers of `wide` if the cost allows that."""
        for least in (APART * wide.depth, wide.depth + 1):
            if least <= self.family.depths[1]:
                deep = self._shaped(target, "deep", least)
                if deep.error <= max(LOOSE, wide.error):
                    return deep
        return wide

    def _shaped(self, target: float, shape: str, least: int = 1) -> _Candidate:
        """The best candidate of `least` layers or more, with the depth of its shape if it can be near."""
        usual = SHAPES[shape]
        known: dict[int, list[_Candidate]] = {}
        for band, error in BANDS:
            for step in FINER:
                if step not in known:
                    known[step] = list(self._estimated(target, usual, step, least))
                some = [each for each in known[step] if each.within(band, error + DOUBT)]
                fitting = [each for each in self._exact(some, target, usual, least) if each.within(band, error)]
                if fitting:
                    return min(fitting, key=lambda each: each.badness)
        every = [each for candidates in known.values() for each in candidates]
        some = sorted(every, key=lambda each: each.compromise)
        exact = list(self._exact(some[:EXACT], target, usual, least)) or self._any(every, target, usual, least)
        return min(exact, key=lambda each: each.compromise)

    def _nearest(self, candidates: list[_Candidate], target: float, usual: float) -> _Candidate:
        """Of the candidates within 3%, or of the nearest ones, the one with the best proportions."""
        error = max(NEAR, min(each.error for each in candidates))
        near = [each for each in candidates if each.error <= error]
        doubtful = [each for each in candidates if error < each.error <= error + DOUBT]
        exact = [found for some in (near, doubtful) for found in self._exact(some, target, usual)]
        exact = exact or self._any(candidates, target, usual)
        error = max(NEAR, min(each.error for each in exact))
        return min((each for each in exact if each.error <= error), key=lambda each: each.badness)

    def _any(self, candidates: list[_Candidate], target: float, usual: float, least: int = 1) -> list[_Candidate]:
        found = list(self._exact(candidates, target, usual, least))
        if not found:
            raise SpaceError(f"{self.family.name} has no model of any width that fits.")
        return found

    def _exact(self, candidates: list[_Candidate], target: float, usual: float, least: int = 1) -> Iterator[_Candidate]:
        """The best of `candidates`, with their computed costs. Widths that do not fit the family are left out."""
        ranked = sorted(candidates, key=lambda each: each.badness)
        widths = dict.fromkeys(each.width for each in ranked)
        fitting = (width for width in widths if self._line(width) is not None)
        for width in islice(fitting, EXACT):
            line = self._line(width)
            assert line is not None
            yield from self._of_width(width, *line, target, usual, least)

    def _estimated(self, target: float, usual: float, step: int, least: int = 1) -> Iterator[_Candidate]:
        """For each width, the depths around the target."""
        ones, layers = self._curves()
        for width in self._widths(step):
            one, layer = ones(width), layers(width)
            yield from self._of_width(width, one, layer, target, usual, least)
            if one + (least - 1) * layer > target:  # wider ones cost even more
                return

    def _widths(self, step: int) -> range:
        anchors = self.family.anchors
        return range(NARROWEST, WIDEST, step) if len(anchors) > 1 else range(anchors[0], anchors[0] + 1)

    def _of_width(
        self, width: int, one: float, layer: float, target: float, usual: float, least: int
    ) -> Iterator[_Candidate]:
        shallowest, deepest = max(self.family.depths[0], least), self.family.depths[1]
        shaped = usual * self.family.usual_depth(width)
        depth = 1 + math.floor((target - one) / layer + 1e-9) if layer > 0 else round(shaped)
        for near in sorted({min(max(each, shallowest), deepest) for each in (depth, depth + 1)}):
            error = abs(one + (near - 1) * layer - target) / target
            yield _Candidate(width, near, error, near / shaped, self.family.oddness(width))

    def _curves(self) -> tuple[Callable[[int], float], Callable[[int], float]]:
        """The cost of a model with one layer, and of one more layer, for every width."""
        anchors = self.family.anchors
        lines = [self._line(width) for width in anchors]
        found = [line for line in lines if line is not None]
        if len(found) < len(anchors):
            raise SpaceError(f"{self.family.name} has no model of width {' or '.join(map(str, anchors))}.")
        return _through(anchors, [one for one, _ in found]), _through(anchors, [layer for _, layer in found])

    def _line(self, width: int) -> tuple[float, float] | None:
        """(cost of a model with one layer, cost of one more layer); None if the width does not fit the family."""
        if width not in self._known:
            try:
                one = self.value(self.family.build(width, 1))
                more = self.value(self.family.build(width, 2)) - one if self.family.depths[1] > 1 else 0
                self._known[width] = (one, more)
            except SpaceError:
                self._known[width] = None
        return self._known[width]


def _through(places: tuple[int, ...], values: list[float]) -> Callable[[int], float]:
    """The polynomial of least degree through `values` at `places` (Lagrange)."""
    weights = [
        value / math.prod(place - other for other in places if other != place) for place, value in zip(places, values)
    ]

    def at(x: int) -> float:
        return sum(
            weight * math.prod(x - other for other in places if other != place)
            for place, weight in zip(places, weights)
        )

    return at
