"""Mutations that change more than one hole: all copies of a hole alike, whole layers, segments of two points.

A *layer* is a copy of a repeat whose copies have holes of their own (`each: true`). In a space without such copies
`vary` changes one hole, as `variation.mutate` does. Here a `!choice` of numbers is ordered: most steps go to a
neighbouring number.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping

from searchspace.language.holes import draw, same_scalar, sorted_numbers
from searchspace.space import variation
from searchspace.space.point import Point
from searchspace.space.variation import TRIES, Variable
from searchspace.tree import Choice, Floats, Hole, Integers, Scalar

ALIKE = 1 / 3  # the share of mutations that change all copies of a hole
LAYERS = 1 / 6  # and of those that move layers
NEIGHBOUR = 0.6  # probability that a choice of numbers takes a neighbouring one
TIMES = "times"
_COPY = re.compile(r"@(\d+)")

Choices = dict[str, Scalar]


def vary(space: Variable, point: Point, rng: random.Random, tries: int = TRIES) -> Point:
    """`point` changed by one move; it is feasible and has another architecture, else the result is `point` itself."""
    for _ in range(tries):
        number = rng.random()
        if number < ALIKE:
            changed = alike(space.dimensions, point.choices, rng)
        elif number < ALIKE + LAYERS:
            changed = rearranged(space.dimensions, point.choices, rng)
        else:
            changed = stepped(space.dimensions, point.choices, rng)
        if changed is not None:
            child = variation.replay(space, changed, rng, point.choices)
            if child and child.architecture != point.architecture:
                return child
    return variation.mutate(space, point, rng, tries)


def exchange(space: Variable, a: Point, b: Point, rng: random.Random, tries: int = TRIES) -> Point:
    """A crossover: in one of three, if there are layers, a segment of `b`'s layers in `a`; else hole by hole."""
    layers = layers_of(a.choices)
    if layers and rng.random() < ALIKE:
        repeat = rng.choice(list(layers))
        low, high = sorted(rng.sample(range(1, max(layers[repeat]) + 2), 2))
        segment = {
            path: value
            for path, value in b.choices.items()
            if (found := _copy_of(path, repeat)) is not None and low <= found < high
        }
        child = variation.replay(space, {**a.choices, **segment}, rng, a.choices)
        if child:
            return child
    return variation.crossover(space, a, b, rng, tries)


def alike(holes: Mapping[str, Hole], choices: Choices, rng: random.Random) -> Choices | None:
    """All copies of one hole with one new value; None if no hole has copies."""
    groups: dict[str, list[str]] = {}
    for path in choices:
        if _COPY.search(path):
            groups.setdefault(_COPY.sub("", path), []).append(path)
    several = [paths for paths in groups.values() if len(paths) > 1]
    if not several:
        return None
    paths = rng.choice(several)
    value = draw(holes[paths[0]], rng)
    return {**choices, **dict.fromkeys(paths, value)}


def rearranged(holes: Mapping[str, Hole], choices: Choices, rng: random.Random) -> Choices | None:
    """A layer copied to its neighbour, two layers exchanged, one inserted or one removed; None if there are none."""
    layers = layers_of(choices)
    if not layers:
        return None
    repeat = rng.choice(list(layers))
    count = max(layers[repeat])
    order = list(range(1, count + 1))
    one, other = rng.randrange(count), rng.randrange(count)
    move = rng.choice(["copy", "swap", "insert", "remove"])
    if move == "copy":
        order[max(0, min(count - 1, one + rng.choice([-1, 1])))] = one + 1
    elif move == "swap":
        order[one], order[other] = order[other], order[one]
    else:
        order = [*order[:one], one + 1, *order[one:]] if move == "insert" else [*order[:one], *order[one + 1 :]]
        depth = _depth(holes, f"{repeat}.{TIMES}", len(order))
        if depth is None:  # the number of layers is fixed, so the others move up or down
            order = order[:count] if move == "insert" else [*order, count]
        else:
            choices = {**choices, f"{repeat}.{TIMES}": depth}
    return _reordered(choices, repeat, order)


def stepped(holes: Mapping[str, Hole], choices: Choices, rng: random.Random) -> Choices | None:
    """One hole with another value, mostly a neighbouring one if they are numbers; None if no hole has two values."""
    open_holes = [path for path in choices if (known := _count(holes[path])) is None or known > 1]
    if not open_holes:
        return None
    kinds: dict[str, list[str]] = {}
    for path in open_holes:
        kinds.setdefault(variation.kind(path, holes[path]), []).append(path)
    path = rng.choice(kinds[rng.choice(list(kinds))])
    return {**choices, path: _next(holes[path], choices[path], rng)}


def layers_of(choices: Mapping[str, Scalar]) -> dict[str, set[int]]:
    """The repeats whose copies have holes of their own, with the numbers of the copies."""
    found: dict[str, set[int]] = {}
    for path in choices:
        for match in _COPY.finditer(path):
            found.setdefault(path[: match.start()], set()).add(int(match[1]))
    return {repeat: copies for repeat, copies in found.items() if len(copies) > 1}


def _next(hole: Hole, value: Scalar, rng: random.Random) -> Scalar:
    numbers = sorted_numbers(hole)
    if numbers is None or rng.random() >= NEIGHBOUR:
        return variation.other(hole, value, rng)
    place = next(index for index, each in enumerate(numbers) if same_scalar(each, value))
    step = rng.choice([-1, 1])
    return numbers[place + step] if 0 <= place + step < len(numbers) else numbers[place - step]


def _count(hole: Hole) -> int | None:
    known = variation.values(hole)
    return None if known is None else len(known)


def _depth(holes: Mapping[str, Hole], path: str, count: int) -> int | None:
    """`count` if the hole at `path` can have it, else None."""
    hole = holes.get(path)
    if isinstance(hole, Integers | Choice | Floats) and variation.admits(hole, count):
        return count
    return None


def _copy_of(path: str, repeat: str) -> int | None:
    """The number of the copy of `repeat` that `path` is in."""
    if not path.startswith(f"{repeat}@"):
        return None
    match = _COPY.match(path, len(repeat))
    return int(match[1]) if match else None


def _reordered(choices: Choices, repeat: str, order: list[int]) -> Choices:
    """The choices with copy i + 1 of `repeat` as copy order[i] was."""
    found = {path: value for path, value in choices.items() if _copy_of(path, repeat) is None}
    for place, source in enumerate(order, 1):
        start = f"{repeat}@{source}"
        for path, value in choices.items():
            if _copy_of(path, repeat) == source:
                found[f"{repeat}@{place}{path[len(start) :]}"] = value
    return found
