"""Where a value stops counting as it is."""

import math

import pytest

from nas.statistics.fence import fence


@pytest.mark.parametrize(
    ("values", "limit"),
    [([1.0], math.inf), ([1.0, 2.0, 3.0, 4.0], 5.5), ([1.0] * 7 + [1.7e308] * 3, math.inf), ([1.7e308] * 9, math.inf)],
)
def test_a_fence_is_a_number_if_most_values_are_as_large_as_a_float_can_hold(values, limit):
    assert fence(values) == limit
