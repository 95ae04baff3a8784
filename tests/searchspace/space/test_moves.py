"""Moves that change several holes at once."""

import itertools
import random

import pytest

from searchspace.language.holes import sorted_numbers
from searchspace.space import moves
from searchspace.space.encoding import columns
from searchspace.space.space import Space
from searchspace.tree import Choice

LAYERS = """
kind: decoder
width: !choice [32, 64, 128]
vocabulary: 64
body:
  - repeat:
      times: !int [2, 6]
      of:
        - residual: {of: {attention: {heads: !choice {each: true, options: [1, 2, 4, 8, 16]}}}}
        - residual: {of: {feed_forward: {expand: !choice {each: true, options: [1, 2, 3, 4]}}}}
"""


@pytest.fixture(scope="module")
def space():
    return Space.parse(LAYERS)


def heads(choices):
    return [value for path, value in choices.items() if path.endswith("heads")]


def test_a_changed_point_is_another_feasible_one(space):
    rng = random.Random(0)
    point = space.sample(rng)
    for _ in range(60):
        child = space.vary(point, rng)
        assert child.architecture != point.architecture
        assert space.feasible(child) and space.contains(child.architecture)
        point = child


def test_all_copies_of_a_hole_change_alike(space):
    rng = random.Random(1)
    point = space.sample(rng)
    for _ in range(20):
        changed = moves.alike(space.dimensions, point.choices, rng)
        different = {path.rpartition(".")[2] for path in changed if changed[path] != point.choices[path]}
        assert len(different) <= 1
        for field in different:
            assert len({value for path, value in changed.items() if path.endswith(field)}) == 1


def test_layers_are_copied_exchanged_inserted_and_removed(space):
    rng, lengths = random.Random(2), set()
    point = next(each for each in iter(lambda: space.sample(rng), None) if len(heads(each.choices)) == 4)
    before = heads(point.choices)
    for _ in range(60):
        after = heads(moves.rearranged(space.dimensions, point.choices, rng))
        lengths.add(len(after) - len(before))
        assert set(after) <= set(before), "no layer is made up"
    assert lengths == {-1, 0, 1}


def test_a_segment_of_layers_is_exchanged(space):
    one, other = (
        space.realise(lambda path, hole, value=value: {"width": 64, "times": 6, "heads": value}.get(_field(path), 2))
        for value in (1, 16)
    )
    rng, mixed = random.Random(3), 0
    for _ in range(60):
        found = heads(space.exchange(one, other, rng).choices)
        changes = sum(a != b for a, b in itertools.pairwise(found))
        mixed += set(found) == {1, 16} and changes <= 2
    assert mixed > 10


def _field(path):
    return path.rpartition(".")[2]


def test_a_choice_of_numbers_mostly_moves_to_a_neighbour(space):
    rng, near = random.Random(4), 0
    hole = space.dimensions["width"]
    for _ in range(300):
        near += moves._next(hole, 32, rng) == 64
    assert near / 300 > 0.7, "60 % of the steps and half of the others"


def test_a_choice_of_numbers_is_one_column(space):
    assert columns({"a": Choice((4, 2, 8)), "b": Choice(("x", 1)), "c": Choice((True, False))}) == [
        "a", "b = x", "b = 1", "c = True", "c = False",
    ]  # fmt: skip
    assert sorted_numbers(Choice((4, 2, 8))) == [2, 4, 8]
    assert sorted_numbers(Choice((1, 1.0))) is None
    widths = sorted(float(space.encode(point)[0]) for point in (_wide(space, width) for width in (64, 32, 128)))
    assert widths == [0.0, 0.5, 1.0]


def _wide(space, width):
    return space.realise(lambda path, hole: {"width": width, "times": 2}.get(path.rpartition(".")[2], 2))
