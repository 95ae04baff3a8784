"""Mutation, crossover and neighbours stay in the space and change only what they declare."""

import random
from collections import Counter

from hypothesis import assume, given
from hypothesis import strategies as st

from searchspace.space import variation
from searchspace.space.space import Space
from searchspace.space.variation import kind

SPACE = """
kind: decoder
width: !choice [8, 12]
vocabulary: 5
body:
  - !choice
    - attention: {heads: !choice [1, 2, 3]}
    - convolution: {kernel: !int [1, 64], kind: depthwise}
  - feed_forward: {expand: !choice [1, 2]}
constraints:
  parameters: {max: 1500}
"""


def feasible_sample(space, rng):
    points = (space.sample(rng, feasible=False) for _ in range(20))
    return next((point for point in points if space.feasible(point)), None)


@given(rng=st.randoms(use_true_random=False))
def test_children_and_neighbours_are_feasible_points_of_the_space(random_space, rng):
    space = random_space(rng, 10**6)
    assume(space is not None)
    a, b = feasible_sample(space, rng), feasible_sample(space, rng)
    assume(a is not None and b is not None)
    children = [space.mutate(a, rng), space.crossover(a, b, rng), *space.neighbours(a, rng)]
    for child in children:
        assert space.point(child.choices) == child
        assert space.feasible(child)


@given(rng=st.randoms(use_true_random=False))
def test_a_mutation_is_another_architecture_where_the_space_has_one(random_space, rng):
    space = random_space(rng, 100)
    assume(space is not None)
    parent = feasible_sample(space, rng)
    assume(parent is not None)
    models = {point.architecture.hash for point in space.enumerate() if space.feasible(point)}
    child = space.mutate(parent, rng)
    assert (child.architecture != parent.architecture) == (len(models) > 1)


def test_a_mutation_changes_one_hole_and_draws_only_what_it_opens():
    space, rng = Space.parse(SPACE), random.Random(0)
    for _ in range(100):
        parent = space.sample(rng)
        child = space.mutate(parent, rng)
        shared = parent.choices.keys() & child.choices.keys()
        changed = [path for path in shared if parent.choices[path] != child.choices[path]]
        opened = child.choices.keys() - parent.choices.keys()
        assert len(changed) == 1
        assert all(path.startswith(changed[0]) for path in opened)


def test_numbers_mostly_move_to_near_values():
    space, rng = Space.parse(SPACE), random.Random(0)
    kernel = "body[0]?convolution.kernel"
    parent = space.point({"width": 8, "body[0]": "convolution", kernel: 32, "body[1].feed_forward.expand": 1})
    steps = Counter()
    while steps.total() < 200:
        child = space.mutate(parent, rng)
        if child.choices.get(kernel, 32) != 32:
            steps["near" if abs(child.choices[kernel] - 32) <= 16 else "far"] += 1
    assert steps["near"] > 3 * steps["far"] > 0


def test_what_did_not_change_stays_as_it_was_across_copies():
    space = Space.parse("""
kind: decoder
width: 8
vocabulary: 5
body:
  - repeat:
      times: !int [2, 4]
      of: {convolution: {kernel: !choice {options: [1, 2, 3, 4, 5, 6, 7], each: true}}}
""")
    rng = random.Random(0)
    kernels = {f"body[0].repeat@{i}.of[0].convolution.kernel": i for i in (1, 2, 3)}
    parent = space.point({"body[0].repeat.times": 3, **kernels})
    longer = [child for child in space.neighbours(parent, rng) if child.choices["body[0].repeat.times"] == 4]
    assert [[block.fields["kernel"] for block in child.architecture.root.fields["body"]][:3] for child in longer] == [
        [1, 2, 3]
    ]


def test_neighbours_are_every_change_of_one_hole():
    space, rng = Space.parse(SPACE.replace("1500", "1M")), random.Random(0)
    point = space.point(
        {"width": 8, "body[0]": "attention", "body[0]?attention.heads": 1, "body[1].feed_forward.expand": 1}
    )
    changes = [
        sorted((path, str(value)) for path, value in child.choices.items() if point.choices.get(path) != value)
        for child in space.neighbours(point, rng)
    ]
    assert changes[0] == [("width", "12")]
    assert [change[0] for change in changes[1:2]] == [("body[0]", "convolution")]
    assert changes[2:] == [[("body[0]?attention.heads", "2")], [("body[1].feed_forward.expand", "2")]]


def test_a_child_of_two_parents_has_every_hole_from_one_of_them():
    space, rng = Space.parse(SPACE), random.Random(0)
    mixed = 0
    for _ in range(50):
        a, b = space.sample(rng), space.sample(rng)
        child = space.crossover(a, b, rng)
        for path, value in child.choices.items():
            assert value in (a.choices.get(path), b.choices.get(path))
        mixed += child.architecture not in (a.architecture, b.architecture)
    assert mixed > 5


def test_the_only_point_of_a_space_is_its_own_mutation():
    space = Space.parse("{kind: decoder, width: 8, vocabulary: 5, body: feed_forward}")
    point = space.sample(random.Random(0))
    assert space.mutate(point, random.Random(0)) == point
    assert list(space.neighbours(point, random.Random(0))) == []


MIXERS = """
kind: decoder
width: !choice [8, 16]
vocabulary: 5
body:
  - !choice
    - repeat:
        times: !int [2, 6]
        of:
          - residual:
              of: !choice
                - attention: {heads: !choice [1, 2, 4]}
                - linear_attention: {heads: !choice [1, 2, 4, 8]}
                - sliding_window_attention: {heads: !choice [1, 2, 4], window: !int [2, 64]}
          - residual: {of: {feed_forward: {expand: !choice [1, 2, 3]}}}
    - halting:
        times: !int [2, 6]
        of:
          - residual: {of: {attention: {heads: !choice [1, 2, 4]}}}
          - residual: {of: {feed_forward: {expand: !choice [1, 2, 3]}}}
"""


def test_a_block_that_takes_the_place_of_another_keeps_what_both_have():
    space, rng = Space.parse(MIXERS), random.Random(0)
    swapped = Counter()
    for _ in range(200):
        parent = space.sample(rng)
        child = space.mutate(parent, rng)
        changed = [path for path, value in parent.choices.items() if child.choices.get(path, value) != value]
        if changed and kind(changed[0], space.dimensions[changed[0]]) == "swap":
            swapped[changed[0]] += 1
            for field in ("heads", "times", "expand"):
                before, after = (
                    {value for path, value in point.choices.items() if path.endswith(f".{field}")}
                    for point in (parent, child)
                )
                assert after == before or 8 in before, "only linear attention may have eight heads"
    assert min(swapped.values()) >= 5


def test_every_kind_of_change_is_tried_as_often_as_the_others_however_many_holes_it_has():
    space, rng = Space.parse(MIXERS), random.Random(0)
    parent = space.sample(rng)
    while "body[0]?repeat.of[0].residual.of[0]?sliding_window_attention.window" not in parent.choices:
        parent = space.sample(rng)
    kinds = Counter()
    for _ in range(600):
        child = space.mutate(parent, rng)
        changed = next(path for path, value in parent.choices.items() if child.choices.get(path, value) != value)
        kinds[kind(changed, space.dimensions[changed])] += 1
    assert set(kinds) == {"swap", "widen", "deepen", "reach", "tune"}
    assert min(kinds.values()) > 0.6 * 600 / 5


def test_a_small_space_remembers_its_mutations_and_proposes_the_same(monkeypatch):
    """The constraint leaves out most points."""
    text = """
kind: decoder
width: !choice [16, 24]
vocabulary: 16
body: [{residual: {of: {feed_forward: {expand: !int [1, 9], bias: !choice [true, false]}}}}]
constraints: {parameters: 3k}
"""

    def walked(space):
        built, realise = [], space.realise
        monkeypatch.setattr(space, "realise", lambda choose: built.append(None) or realise(choose))
        rng, found = random.Random(0), [space.sample(random.Random(1))]
        for _ in range(200):
            found.append(variation.mutate(space, found[-1], rng))
        return [each.choices for each in found], len(built)

    remembered, few = walked(Space.parse(text))
    longer = Space.parse(text).with_length(64)  # another space: what is feasible depends on the length
    assert variation._recent(longer) == {}
    monkeypatch.setattr(variation, "SMALL", 0)
    plain, many = walked(Space.parse(text))
    assert remembered == plain
    assert few < many / 3
    assert variation._recent(Space.parse(text)) is None
