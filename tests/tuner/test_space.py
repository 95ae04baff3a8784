"""A tuning space holds what its constraints allow, numbers it, and tells a model what matters."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.space import TuningSpace

PARAMETERS = {"block": [16, 48, 64, 128], "tile": [1, 2, 4], "layout": ["row", "column"], "fixed": [7]}
SPACE = TuningSpace.product(PARAMETERS, [lambda c: c["block"] * c["tile"] <= 256])


def test_every_combination_that_the_constraints_allow_has_a_number():
    assert len(SPACE) == 2 * (3 * 4 - 1)  # 128 x 4 is ruled out
    for number in range(len(SPACE)):
        assert SPACE.number(SPACE.configuration(number)) == number


@given(st.integers(0, len(SPACE) - 1))
def test_neighbours_differ_in_one_parameter_and_are_neighbours_both_ways(number):
    near = SPACE.neighbours(number)
    one = SPACE.configuration(number)
    for other in near:
        assert sum(one[name] != value for name, value in SPACE.configuration(other).items()) == 1
        assert number in SPACE.neighbours(other)
    differing = (SPACE.places != SPACE.places[number]).sum(1)
    assert near == sorted(near, key=near.index)
    assert sorted(near) == np.flatnonzero(differing == 1).tolist()


def test_features_lie_between_zero_and_one_and_tell_all_configurations_apart():
    features = SPACE.features
    assert features.min() >= 0
    assert features.max() <= 1
    assert len(np.unique(features, axis=0)) == len(SPACE)
    # layout; the logarithms of block and tile; how often 2 divides the block (tiles are powers of two); their product
    assert features.shape == (len(SPACE), 5)


def test_a_product_of_sizes_and_how_often_two_divides_one_are_features():
    space = TuningSpace.product({"x": [16, 48, 64], "y": [1, 2, 4]})
    x, y = (np.array([space.configuration(i)[name] for i in range(len(space))]) for name in "xy")
    columns = space.features.T
    twos = np.array([{16: 0.0, 48: 0.0, 64: 1.0}[value] for value in x])
    assert any(np.allclose(column, twos) for column in columns)
    product = np.log2(x * y)
    assert any(np.allclose(2 * column, (product - product.min()) / np.ptp(product)) for column in columns)


def test_uneven_sizes_are_counted_among_those_that_may_be_even():
    space = TuningSpace.product({"a": [4, 6, 8], "b": [2, 3, 4], "c": [1, 2, 4], "d": [3, 5, 7], "e": [False, True]})
    for number, share in zip(range(len(space)), space.uneven, strict=True):
        here = space.configuration(number)
        assert share == ((here["a"] == 6) + (here["b"] == 3)) / 2
    assert not TuningSpace.product({"a": [1, 2, 4], "b": [3, 5, 7]}).uneven.any()


@pytest.mark.parametrize(
    ("configuration", "said"),
    [
        ({"block": 16, "tile": 1, "layout": "row"}, "lacks fixed"),
        ({"block": 16, "tile": 1, "layout": "row", "fixed": 7, "tiel": 2}, "no parameter 'tiel'. Did you mean 'tile'?"),
        ({"block": 17, "tile": 1, "layout": "row", "fixed": 7}, "block must be one of"),
        ({"block": 128, "tile": 4, "layout": "row", "fixed": 7}, "the constraints of the space reject"),
    ],
)
def test_what_is_no_configuration_is_refused_with_the_reason(configuration, said):
    with pytest.raises(ValueError, match="(?s)" + said.replace("?", r"\?")):
        SPACE.number(configuration)


def test_an_empty_space_and_repeated_values_are_refused():
    with pytest.raises(ValueError, match="reject all of them"):
        TuningSpace.product({"x": [1, 2]}, [lambda c: False])
    with pytest.raises(ValueError, match="parameter 'x' needs values, each once"):
        TuningSpace.product({"x": [1, 1]})
