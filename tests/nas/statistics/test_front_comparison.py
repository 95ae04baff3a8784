"""The permutation test of two fronts: how often it errs, what it sees, what it does not depend on."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nas import pareto
from nas.statistics.front_comparison import compare, scaled, volumes

Rows = list[tuple[float, ...]]


def drawn(rng: random.Random, count: int, objectives: int, shift: float = 0.0) -> Rows:
    return [tuple(rng.gauss(-shift, 1) for _ in range(objectives)) for _ in range(count)]


@pytest.mark.parametrize(("sizes", "objectives"), [((6, 6), 2), ((20, 20), 2), ((30, 10), 1)])
def test_equal_sets_are_seldom_called_different(sizes: tuple[int, int], objectives: int) -> None:
    rng, runs = random.Random(3), 300
    found = [compare(*(drawn(rng, each, objectives) for each in sizes), deals=200) for _ in range(runs)]
    assert sum(each.low > 0 for each in found) / runs <= 0.05
    assert sum(each.high < 0 for each in found) / runs <= 0.05


def test_a_clear_difference_is_seen_in_either_order() -> None:
    rng = random.Random(0)
    good, bad = drawn(rng, 20, 2, shift=2.0), drawn(rng, 20, 2)
    better, worse = compare(good, bad), compare(bad, good)
    assert better.low > 0 and worse.high < 0
    assert better.difference == pytest.approx(-worse.difference)
    assert compare(good, bad) == better  # the same trials, the same interval


def test_a_few_trials_decide_nothing() -> None:
    assert compare([(0.0,), (0.1,)], [(5.0,), (6.0,)]).low <= 0


def test_too_few_trials_for_five_per_cent_never_decide() -> None:
    """With 3 and 1 there are 4 deals. The order of a sum once decided, because the actual deal is one of them."""
    rng = random.Random(5)
    for objectives in (1, 2, 3):
        for _ in range(30):
            found = compare(drawn(rng, 3, objectives), drawn(rng, 1, objectives), deals=100)
            assert found.low <= 0 <= found.high


def test_a_value_that_is_not_finite_is_none() -> None:
    with_nan = compare([(1.0, 2.0), (float("nan"), 0.0)], [(0.0, 3.0)])
    assert with_nan == compare([(1.0, 2.0), None], [(0.0, 3.0)])


def test_a_diverged_trial_does_not_hide_the_others() -> None:
    rng = random.Random(1)
    good, bad = drawn(rng, 20, 2, shift=2.0), drawn(rng, 20, 2)
    assert compare(good, [*bad, (1e9, 0.0)]).low > 0


def test_failed_trials_count_as_empty() -> None:
    assert compare([None, None], [None]) is None
    good = [(float(n), float(9 - n)) for n in range(10)]
    found = compare(good, [None] * 10)
    assert (found.one, found.other) == (1.0, 0.0)
    assert found.low > 0


def test_only_trials_of_one_group_change_places() -> None:
    one, other = [(0.0,), (1.0,)], [(2.0,), (3.0,)]
    found = compare(one, other, groups=["long", "short", "middle", "middle"])
    assert found.low == found.high == 0  # no deal differs from what was: nothing can be said


@given(st.lists(st.tuples(*[st.floats(0, 9)] * 2), min_size=1, max_size=12), st.integers(0, 99))
def test_the_volume_is_the_hypervolume(rows: Rows, seed: int) -> None:
    unit = scaled(rows)
    masks = np.random.default_rng(seed).random((3, len(rows))) < 0.6
    for mask, found in zip(masks, volumes(unit, masks)):
        assert found == pytest.approx(pareto.hypervolume(unit[mask], (1.0, 1.0)), abs=1e-9)


def test_three_objectives_are_sampled() -> None:
    unit = scaled(drawn(random.Random(0), 30, 3))
    every = np.ones((1, 30), dtype=bool)
    assert volumes(unit, every)[0] == pytest.approx(pareto.hypervolume(unit, (1.0,) * 3), abs=0.03)


def test_many_objectives_at_odds_have_shares_of_a_small_volume() -> None:
    """Each trial is good at half of eight objectives: the front fills less than a thousandth of the box."""
    rng = random.Random(0)
    rows: Rows = [tuple((i + place // 4) % 2 + rng.random() / 100 for place in range(8)) for i in range(12)]
    found = compare(rows[::2], rows[1::2])
    assert found is not None
    assert found.one == pytest.approx(0.5, abs=0.05) and found.other == pytest.approx(0.5, abs=0.05)


def test_the_interval_of_a_difference_of_shares_stays_within_one():
    one = [None, (0.26, 0.51), (0.78, 0.3), (0.58, 0.91)]
    found = compare(one, [(0.14, 0.09), None, None, None, None])
    assert found is not None
    assert -1 <= found.low <= found.difference <= found.high <= 1


@pytest.mark.parametrize("objectives", [1, 2, 3])
def test_shares_are_numbers_if_the_values_span_all_that_a_float_can_hold(objectives):
    extreme = [(value,) * objectives for value in (1.7e308, -1.7e308, 1.0, 1.7e308, -1.7e308)]
    found = compare(extreme, extreme[::-1])
    assert found.one == found.other == 1.0 and found.low <= 0 <= found.high
