"""The size of a space, and both ways to sample it."""

import itertools
import json
import math
import random
from collections import Counter

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import chisquare

from searchspace.errors import SpaceError
from searchspace.language.holes import values
from searchspace.space.space import Space

COPIES = """
kind: decoder
width: 8
vocabulary: 5
body:
  - repeat:
      times: !int {low: 1, high: 3, name: depth}
      of:
        - residual:
            norm: !choice {options: [layer_norm, rms_norm], name: norm}
            of: !choice
              each: true
              options:
                - convolution: {kernel: !choice [1, 2]}
                - [feed_forward, {attention: {heads: 1}}]
  - repeat:
      times: !same depth
      share_weights: true
      of:
        - residual: {norm: !same norm, of: !choice [feed_forward, {attention: {heads: 2}}]}
"""

UNEVEN = """
kind: decoder
width: 8
vocabulary: 5
body:
  - !choice
    - feed_forward
    - - attention: {heads: !choice {options: [1, 2, 4], name: heads}}
      - attention: {heads: !same heads}
      - convolution: {kernel: !int {low: 1, high: 3, log: true}}
  - repeat:
      times: !choice [1, 2]
      of: {convolution: {kernel: !choice {options: [5, 7], each: true}}}
"""


def key(choices):
    return json.dumps(choices, sort_keys=True)


def small(text):
    return Space.parse(text)


@given(rng=st.randoms(use_true_random=False))
def test_size_is_the_number_of_points_that_enumeration_finds(random_space, rng):
    space = random_space(rng, 400)
    assume(space is not None)
    size = space.size()
    points = list(itertools.islice(space.enumerate(), size.points + 1))
    assert len(points) == size.points
    assert len({key(point.choices) for point in points}) == size.points


def test_counts_copies_under_what_they_share_and_ties_once():
    # For each depth: two norms, three ways for each copy of the first repeat, two bodies of the second.
    assert small(COPIES).size().points == sum(2 * 3**depth * 2 for depth in (1, 2, 3))
    assert small(UNEVEN).size().points == (1 + 3 * 3) * (2 + 4)


def test_a_tie_in_a_branch_counts_only_where_the_branch_is_taken():
    space = small("""
kind: decoder
width: 8
vocabulary: 5
body:
  - attention: {heads: !choice {options: [1, 2], name: heads}}
  - !choice
    - feed_forward
    - attention: {heads: !same heads}
""")
    assert space.size().points == 2 * 2


def test_nested_repeats_draw_for_every_copy_of_both():
    space = small("""
kind: decoder
width: 8
vocabulary: 5
body:
  repeat:
    times: !int [1, 2]
    of:
      repeat:
        times: !choice {options: [1, 2], each: true}
        of: {convolution: {kernel: !choice {options: [1, 2, 3], each: true}}}
""")
    one = 3 + 3**2
    assert space.size().points == one + one**2


def test_size_is_exact_beyond_any_float():
    space = small(COPIES.replace("high: 3", "high: 60"))
    assert space.size().points == sum(4 * 3**depth for depth in range(1, 61))


def test_a_real_interval_makes_the_points_uncountable():
    space = small("""
kind: decoder
width: 8
vocabulary: 5
dropout: !float [0.0, 0.5]
body: !choice [feed_forward, {attention: {heads: 2}}]
""")
    size = space.size()
    assert (size.points, size.continuous, size.discrete) == (None, 1, 2)
    assert str(size) == "2 points times 1 real interval"
    with pytest.raises(SpaceError, match="dropout"):
        next(space.enumerate())
    with pytest.raises(SpaceError, match="Too large"):
        space.distinct()


def test_distinct_counts_models_and_not_ways_to_write_them():
    space = small("""
kind: decoder
width: 8
vocabulary: 5
body:
  repeat: {times: !int [1, 2], share_weights: !choice [true, false], of: feed_forward}
""")
    assert space.size().points == 4
    assert space.distinct() == 3  # one step gives the same model with and without shared weights


@pytest.mark.parametrize("text", [COPIES, UNEVEN], ids=["copies", "uneven"])
def test_sampling_by_architectures_makes_every_point_equally_likely(text):
    space, rng = small(text), random.Random(1)
    points = [key(point.choices) for point in space.enumerate()]
    draws = Counter(key(space.sample(rng, by="architectures").choices) for _ in range(20 * len(points)))
    assert draws.keys() == set(points)
    assert chisquare([draws[point] for point in points]).pvalue > 1e-3


@pytest.mark.parametrize("text", [COPIES, UNEVEN], ids=["copies", "uneven"])
def test_sampling_by_choices_makes_every_value_of_a_reached_hole_equally_likely(text):
    space, rng = small(text), random.Random(2)

    def probability(choices):
        product = 1.0
        for path, value in choices.items():
            hole = space.dimensions[path]
            if getattr(hole, "log", False):
                product *= math.log((value + 1) / value) / math.log((hole.high + 1) / hole.low)
            else:
                product /= len(values(hole))
        return product

    expected = {key(point.choices): probability(point.choices) for point in space.enumerate()}
    assert sum(expected.values()) == pytest.approx(1)
    count = math.ceil(5 / min(expected.values()))
    draws = Counter(key(space.sample(rng, by="choices").choices) for _ in range(count))
    assert draws.keys() <= expected.keys()
    observed = [draws[point] for point in expected]
    assert chisquare(observed, [count * p for p in expected.values()]).pvalue > 1e-3


@given(rng=st.randoms(use_true_random=False))
def test_a_point_drawn_by_architectures_is_a_point_of_the_space(random_space, rng):
    space = random_space(rng, 10**9)
    assume(space is not None)
    point = space.sample(rng, by="architectures", feasible=False)
    assert space.point(point.choices) == point


def test_a_copys_own_number_of_copies_cannot_be_tied_and_counted():
    space = small("""
kind: decoder
width: 8
vocabulary: 5
body:
  repeat:
    times: 2
    of:
      - repeat:
          times: !int {low: 1, high: 2, each: true, name: depth}
          of: {convolution: {kernel: !choice {options: [1, 2], each: true}}}
      - repeat:
          times: !same depth
          of: {convolution: {kernel: !choice {options: [1, 2], each: true}}}
""")
    assert space.sample(random.Random(0)).architecture
    with pytest.raises(SpaceError, match="cannot be counted"):
        space.size()
