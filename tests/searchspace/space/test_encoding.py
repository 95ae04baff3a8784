"""Points as vectors."""

import random

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from searchspace.space.encoding import columns
from searchspace.space.space import Space

SPACE = """
kind: decoder
width: !int {low: 8, high: 32, step: 8}
vocabulary: 5
dropout: !float [0.0, 0.5]
body:
  - !choice
    - feed_forward
    - sliding_window_attention: {heads: 2, window: !int {low: 1, high: 16, log: true}}
"""


@given(rng=st.randoms(use_true_random=False))
def test_different_points_have_different_vectors_of_one_length(random_space, rng):
    space = random_space(rng, 200)
    assume(space is not None)
    points = list(space.enumerate())
    matrix = np.array([space.encode(point) for point in points]).reshape(len(points), -1)
    assert matrix.shape == (len(points), len(columns(space.dimensions)))
    assert len(np.unique(matrix, axis=0)) == len(points)
    assert ((matrix == -1) | ((matrix >= 0) & (matrix <= 1))).all()


def test_columns_are_named_and_numbers_lie_between_their_ends():
    space = Space.parse(SPACE)
    window = "body[0]?sliding_window_attention.window"
    assert columns(space.dimensions) == [
        "width", "dropout", "body[0] = feed_forward", "body[0] = sliding_window_attention", window,
    ]  # fmt: skip
    point = space.point({"width": 16, "dropout": 0.125, "body[0]": "sliding_window_attention", window: 4})
    assert space.encode(point).tolist() == [1 / 3, 0.25, 0, 1, 0.5]
    closed = space.point({"width": 32, "dropout": 0.5, "body[0]": "feed_forward"})
    assert space.encode(closed).tolist() == [1, 1, 1, 0, -1]


def test_a_space_without_holes_has_vectors_without_columns():
    space = Space.parse("{kind: decoder, width: 8, vocabulary: 5, body: feed_forward}")
    assert space.encode(space.sample(random.Random(0))).shape == (0,)
