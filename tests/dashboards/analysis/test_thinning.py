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


def test_few_points_are_all_kept():
    assert list(thinned([1, 2, 2], [3, 4, 4])) == [0, 1, 2]


def test_both_sides_have_one_length():
    with pytest.raises(ValueError, match="as many"):
        thinned([1], [1, 2])
