"""The correlation of all trials, estimated from that of the best."""

import math
import random

import pytest

from nas.statistics.rank_correlation import correlation, of_all, ranks


@pytest.mark.parametrize("true", [-0.6, 0.0, 0.4, 0.8])
def test_the_correlation_of_all_is_estimated_from_that_of_the_best_third(true) -> None:
    rng = random.Random(0)
    first = {number: rng.gauss(0, 1) for number in range(6000)}
    second = {number: true * x + math.sqrt(1 - true**2) * rng.gauss(0, 1) for number, x in first.items()}
    best = sorted(first, key=first.__getitem__)[:2000]
    among_best = correlation([first[each] for each in best], [second[each] for each in best]).value

    estimated = of_all(among_best, best, first)
    in_truth = correlation(list(first.values()), list(second.values())).value
    assert estimated == pytest.approx(in_truth, abs=0.12)
    if abs(true) > 0.3:
        assert abs(estimated - in_truth) < abs(among_best - in_truth) / 2


def test_without_a_choice_nothing_is_corrected() -> None:
    xs = {number: float(number) for number in range(10)}
    assert of_all(0.3, xs, xs) == pytest.approx(0.3)
    assert of_all(1.0, [8, 9], xs) == 1.0
    assert of_all(0.0, [8, 9], xs) == 0.0


def test_a_value_that_is_no_number_has_a_rank_of_its_own() -> None:
    assert sorted(ranks([2.0, math.nan, 1.0, math.nan])) == [1, 2, 3, 4]
