import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.measure.interval import median_interval

times = st.floats(1e-6, 1e6)


@given(st.lists(times, min_size=1, max_size=200))
def test_the_interval_holds_the_median_and_ends_on_samples(samples):
    interval = median_interval(samples)

    assert interval.low <= interval.median <= interval.high
    assert {interval.low, interval.high} <= set(samples)
    assert interval.median == statistics.median(samples)


@given(st.lists(times, min_size=6, max_size=200), st.floats(0.5, 0.96))
def test_six_samples_are_enough_for_the_confidence_asked_for(samples, confidence):
    assert median_interval(samples, confidence).coverage >= confidence


@pytest.mark.parametrize(
    ("count", "rank"),
    [(6, 1), (8, 1), (9, 2), (20, 6), (30, 10), (50, 18), (100, 40)],
    ids=str,
)
def test_the_ends_are_those_of_the_published_tables(count, rank):
    """Conover 1999, "Practical Nonparametric Statistics", table A3: the 2.5 % points of Binomial(n, 1/2)."""
    interval = median_interval(range(1, count + 1))

    assert (interval.low, interval.high) == (rank, count + 1 - rank)


@pytest.mark.parametrize(("count", "coverage"), [(1, 0.0), (2, 0.5), (3, 0.75), (5, 0.9375)], ids=str)
def test_few_samples_give_their_whole_range_and_say_what_it_is_worth(count, coverage):
    interval = median_interval(range(count))

    assert (interval.low, interval.high) == (0, count - 1)
    assert interval.coverage == coverage


@pytest.mark.parametrize("count", [7, 20, 41])
def test_the_true_median_lies_inside_as_often_as_promised_under_skewed_noise(count):
    """Lognormal, as timings are; its true median is 1. Four standard errors of 2,000 draws are allowed."""
    chance = random.Random(count)
    draws = 2000
    hits = 0
    for _ in range(draws):
        interval = median_interval([chance.lognormvariate(0, 1) for _ in range(count)])
        hits += interval.low <= 1 <= interval.high
    promised = interval.coverage

    assert abs(hits / draws - promised) < 4 * (promised * (1 - promised) / draws) ** 0.5


def test_rejects_an_empty_sample():
    with pytest.raises(ValueError, match="at least one sample"):
        median_interval([])


@pytest.mark.parametrize("confidence", [0, 1, -0.1, 95])
def test_rejects_a_confidence_that_is_no_probability(confidence):
    with pytest.raises(ValueError, match="between 0 and 1"):
        median_interval([1.0], confidence)
