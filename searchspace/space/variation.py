"""New points from old ones, for evolution and local search.

Each function changes some recorded choices and replays them through `Space.realise`. If the path of a hole is still
active afterwards, the hole keeps its value, so a subtree that was not changed stays the same. Each mutation has a kind:
it swaps a block, widens, deepens, shares weights, changes a reach or tunes. Each kind is as likely as the others. If a
block replaces another, it keeps the values of the fields that both have, such as the number of heads. The other holes
that become active are drawn.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any, Protocol, runtime_checkable
from weakref import WeakKeyDictionary

from searchspace.errors import SpaceError
from searchspace.language.holes import admits, draw, from_unit, same_scalar, unit, values
from searchspace.language.traversal import Choose
from searchspace.space.point import Point
from searchspace.tree import Block, Choice, Floats, Hole, Integers, Scalar

TRIES = 100
SMALL = 100_000  # points of a space whose mutations are remembered
RECENT = 2000  # of them, the newest


class Variable(Protocol):
    """What this module needs of a space; `Space` implements it."""

    @property
    def dimensions(self) -> Mapping[str, Hole]: ...

    def realise(self, choose: Choose) -> Point: ...

    def feasible(self, point: Point) -> bool: ...


@runtime_checkable
class Sized(Protocol):
    """A space that knows its number of points."""

    def size(self) -> Any: ...


_RECENT: WeakKeyDictionary[Variable, dict[str, Point | None] | None] = WeakKeyDictionary()

# The kind of change by the field of the hole. A choice of blocks is a swap; any other field tunes.
KINDS = {
    "width": "widen",
    "expand": "widen",
    "hidden": "widen",
    "times": "deepen",
    "share_weights": "share",
    "window": "reach",
    "kernel": "reach",
    "segment": "reach",
    "memory": "reach",
    "span": "reach",
}
NEAR = 0.15  # standard deviation of a near step, as a fraction of the range
FAR = 0.2  # probability that a number is drawn from its whole range instead
OPEN_STEPS = (-0.3, -0.1, -0.03, 0.03, 0.1, 0.3)  # neighbours of a value in a real interval, as fractions of the range


def mutate(space: Variable, point: Point, rng: random.Random, tries: int = TRIES) -> Point:
    """`point` with one of its holes filled differently: a number mostly with a near value, a choice with any other.

    First a kind of change is drawn (see `kind`), then one of its holes. The result is feasible and has another
    architecture. If neither `tries` mutations nor as many samples find one, the result is `point` itself.
    """
    holes = _open_holes(space, point)
    free: dict[str, list[str]] = {}
    for path, hole in holes.items():
        if (known := values(hole)) is None or len(known) > 1:
            free.setdefault(kind(path, hole), []).append(path)
    for _ in range(tries if free else 0):
        path = rng.choice(free[rng.choice(list(free))])
        changed = other(holes[path], point.choices[path], rng)
        child = replay(space, {**point.choices, path: changed}, rng, point.choices)
        if child and child.architecture != point.architecture:
            return child
    for _ in range(tries if free else 0):
        child = replay(space, {}, rng)
        if child and child.architecture != point.architecture:
            return child
    return point


def kind(path: str, hole: Hole) -> str:
    """The kind of change if the hole at `path` is filled differently: swap, widen, deepen, share, reach or tune."""
    if isinstance(hole, Choice) and any(isinstance(option, Block | tuple) for option in hole.options):
        return "swap"
    return KINDS.get(_field(path), "tune")


def crossover(space: Variable, a: Point, b: Point, rng: random.Random, tries: int = TRIES) -> Point:
    """A feasible point whose holes are filled as in `a` or as in `b`, each with probability 0.5 if both have it active.

    Holes that are active in neither parent are drawn. The result may equal a parent. If `tries` find nothing feasible,
    the result is a mutation of `a`.
    """
    for _ in range(tries):
        mixed = {**a.choices, **b.choices}
        for path in a.choices:
            if path not in b.choices or rng.random() < 0.5:
                mixed[path] = a.choices[path]
        child = replay(space, mixed, rng)
        if child:
            return child
    return mutate(space, a, rng, tries)


def neighbours(space: Variable, point: Point, rng: random.Random, tries: int = 10) -> Iterator[Point]:
    """Every feasible architecture that differs from `point` in one hole, each once, in the order of holes and values.

    Holes that a change makes active are drawn, up to `tries` times until the point is feasible. A real interval is
    sampled at a few near values.
    """
    seen = {point.architecture.hash}
    for path, hole in _open_holes(space, point).items():
        for value in _others(hole, point.choices[path]):
            for _ in range(tries):
                child = replay(space, {**point.choices, path: value}, rng)
                if child:
                    if child.architecture.hash not in seen:
                        seen.add(child.architecture.hash)
                        yield child
                    break


def _open_holes(space: Variable, point: Point) -> dict[str, Hole]:
    return {path: space.dimensions[path] for path in point.choices}


def replay(
    space: Variable, choices: dict[str, Scalar], rng: random.Random, donor: Mapping[str, Scalar] | None = None
) -> Point | None:
    """The point of `choices`; holes without a choice are drawn. None if the point is not feasible.

    If `donor` has a hole of the same field elsewhere, its value is taken instead: the one whose path ends most alike.
    """

    recent = _recent(space)
    key = repr(choices) if recent is not None else ""  # unlike 1 == 1.0 == True, their texts differ
    if recent is not None and key in recent:
        return recent[key]
    is_complete = True

    def recorded(path: str, hole: Hole) -> Scalar:
        nonlocal is_complete
        if path in choices and admits(hole, choices[path]):
            return choices[path]
        is_complete = False
        same_field = [other for other in donor or () if _field(other) == _field(path)]
        nearest = max(same_field, key=lambda other: _same_end(other, path), default=None)
        if donor and nearest is not None and admits(hole, donor[nearest]):
            return donor[nearest]
        return draw(hole, rng)

    point: Point | None
    try:
        point = space.realise(recorded)
    except SpaceError:  # too many blocks with repeats expanded
        point = None
    if point is not None and not space.feasible(point):
        point = None
    if recent is not None and is_complete:
        if len(recent) >= RECENT:
            del recent[next(iter(recent))]
        recent[key] = point
    return point


def _recent(space: Variable) -> dict[str, Point | None] | None:
    """What `replay` found for complete choices, oldest first; None for a large space, where few points come again.

    Near the end of a small space most mutations are known points, and to build each of them takes a millisecond.
    """
    if space not in _RECENT:
        points = space.size().points if isinstance(space, Sized) else None
        _RECENT[space] = {} if points is not None and points <= SMALL else None
    return _RECENT[space]


def _field(path: str) -> str:
    """The name of the field that holds the hole at `path`, without its place in a list."""
    return path.rpartition(".")[2].partition("[")[0]


def _same_end(one: str, other: str) -> int:
    """The length of the common end of two paths, in characters."""
    pairs = zip(reversed(one), reversed(other))
    return next((index for index, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def other(hole: Hole, value: Scalar, rng: random.Random) -> Scalar:
    """Another value of the hole: for a number mostly a near one."""
    if isinstance(hole, Integers | Floats) and rng.random() >= FAR:
        assert isinstance(value, int | float)
        return _near(hole, value, rng)
    while same_scalar(other := draw(hole, rng), value):
        pass
    return other


def _near(hole: Integers | Floats, value: float, rng: random.Random) -> int | float:
    step = rng.gauss(0, NEAR)
    other = from_unit(hole, unit(hole, value) + step)
    known = values(hole)
    if other != value or known is None:
        return other
    # The step was shorter than the grid, so take the next value; at an end there is only one.
    index = known.index(value) + (1 if step > 0 else -1)
    return known[index if 0 <= index < len(known) else 2 * known.index(value) - index]  # type: ignore[return-value]


def _others(hole: Hole, value: Scalar) -> Iterator[Scalar]:
    known = values(hole)
    if known is not None:
        yield from (other for other in known if not same_scalar(other, value))
        return
    assert isinstance(hole, Floats) and not isinstance(hole, Choice) and isinstance(value, int | float)
    for step in OPEN_STEPS:
        if 0 <= unit(hole, value) + step <= 1:
            yield from_unit(hole, unit(hole, value) + step)
