"""Thinning keeps the front, the extremes and outliers exactly."""

import numpy as np
import pytest

from dashboards.analysis.thinning import thinned
from nas import pareto


@pytest.fixture(scope="module")
def cloud():
    generator = np.random.default_rng(0)
    points = generator.normal(size=(100_000, 2))
    points[:5] = [[40, 40], [-40, 38], [35, -40], [20, 41], [-41, -41.5]]  # alone, far away
    return points


def test_the_front_the_extremes_and_outliers_stay(cloud):
    front = np.zeros(len(cloud), dtype=bool)
    front[pareto.front(cloud)] = True

    kept = thinned(cloud[:, 0], cloud[:, 1], front)

    assert set(np.flatnonzero(front)) <= set(kept)
    assert set(range(5)) <= set(kept)
    assert {*cloud.argmin(axis=0), *cloud.argmax(axis=0)} <= set(kept)
    assert len(kept) < 2300


def test_cells_are_equally_large_on_logarithmic_axes(cloud):
    exponent, y = 3 * cloud[5:, 0], cloud[5:, 1]
    x = 10**exponent  # most values lie in one cell of a linear axis

    assert list(thinned(x, y, log=(True, False))) == list(thinned(exponent, y))
    assert list(thinned(y, x, log=(False, True))) == list(thinned(y, exponent))
    assert len(thinned(x, y)) < 0.2 * len(thinned(x, y, log=(True, False)))


def test_a_logarithmic_axis_has_no_zero():
    with pytest.raises(ValueError, match="positive"):
        thinned([0.0, 1.0, 2.0], [1, 2, 3], most=2, log=(True, False))


def test_few_points_are_all_kept():
    assert list(thinned([1, 2, 2], [3, 4, 4])) == [0, 1, 2]


def test_both_sides_have_one_length():
    with pytest.raises(ValueError, match="as many"):
        thinned([1], [1, 2])
