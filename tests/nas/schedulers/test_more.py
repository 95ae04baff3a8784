"""Hyperband, progressive dynamic hurdles and PASHA: what each of them does beyond what every scheduler does."""

import random

import numpy as np
import pytest

from nas.errors import UsageError
from nas.schedulers.contract import Promotion
from nas.schedulers.extrapolation import chance_below
from nas.schedulers.registry import make, registry


def ended(scheduler, number, value, steps, rung=0):
    scheduler.started(number, rung, steps)
    scheduler.tell(number, rung, None if value is None else (value,), steps)


def test_brackets_of_hyperband_start_at_different_levels_with_about_equal_cost():
    scheduler = make("hyperband", rungs=[1, 3, 9], factor=3)
    starts = [scheduler.start(number) for number in range(17)]
    assert [starts.count(steps) for steps in (1, 3, 9)] == [9, 5, 3]
    assert starts[:6] != sorted(starts[:6]), "they take turns"


def test_a_bracket_promotes_its_own_trials_alone():
    scheduler = make("hyperband", rungs=[1, 3], factor=2)
    low, high = ([number for number in range(6) if scheduler.start(number) == steps] for steps in (1, 3))
    for number in high:
        ended(scheduler, number, 0.0, 3)
    assert scheduler.promotion() is None
    for number in low[:2]:
        ended(scheduler, number, 5.0 + number, 1)
    assert scheduler.promotion() == Promotion(low[0], 1, 3)


def test_hyperband_has_no_more_brackets_than_levels():
    with pytest.raises(UsageError, match="brackets must be at most the number of rungs, 2, but got 3"):
        make("hyperband", rungs=[1, 3], brackets=3)


def test_hyperband_with_many_levels_starts_at_once_and_uses_every_bracket():
    scheduler = make("hyperband", rungs=[4**level for level in range(12)], factor=10)
    starts = [scheduler.start(number) for number in range(4_100)]
    assert set(starts) == {4**level for level in range(12)}


def test_hyperband_names_a_factor_that_is_too_large():
    with pytest.raises(UsageError, match=r"factor is too large for 60 rungs: 1e\+06"):
        make("hyperband", rungs=list(range(1, 61)), factor=1e6)
    with pytest.raises(UsageError, match="option 'factor': must be a finite number, but got inf"):
        make("hyperband", rungs=[1, 3], factor=float("inf"))


def test_the_mean_of_the_first_trials_is_the_first_hurdle():
    scheduler = make("hurdles", rungs=[10, 20, 30], wait=4)
    for number, value in enumerate([1.0, 2.0, 3.0, 6.0]):
        ended(scheduler, number, value, 10)
    assert scheduler.hurdles == [3.0]
    assert scheduler.promotion() is None, "trials before the hurdle do not train further"
    ended(scheduler, 4, 3.5, 10)
    assert scheduler.promotion() is None
    ended(scheduler, 5, 2.5, 10)
    assert scheduler.promotion() == Promotion(5, 1, 20)


def test_the_next_hurdle_is_the_mean_of_the_highest_level():
    scheduler = make("hurdles", rungs=[10, 20, 30], wait=2)
    for number, value in enumerate([4.0, 4.0]):
        ended(scheduler, number, value, 10)
    for number, value in ((2, 1.0), (3, 2.0)):
        ended(scheduler, number, value, 10)
        ended(scheduler, number, value - 0.5, 20, rung=1)
    assert scheduler.hurdles == [4.0, 0.5], "as soon as one trial has reached the level"
    ended(scheduler, 4, 1.0, 10)
    ended(scheduler, 4, 0.4, 20, rung=1)
    assert scheduler.promotion() == Promotion(4, 2, 30)


def test_a_diverged_trial_takes_no_hurdle():
    scheduler = make("hurdles", rungs=[10, 20], wait=1)
    ended(scheduler, 0, 4.0, 10)
    ended(scheduler, 1, float("nan"), 10)
    ended(scheduler, 2, None, 10)
    assert scheduler.promotion() is None


def test_pasha_opens_a_level_only_if_the_ranking_changes():
    def searched(second):
        scheduler = make("pasha", rungs=[1, 2, 4], factor=1.5)
        for number, value in enumerate([1.0, 2.0, 3.0]):
            ended(scheduler, number, value, 1)
        for number, value in enumerate(second):
            ended(scheduler, number, value, 2, rung=1)
        return scheduler.highest

    assert searched([0.5, 1.5]) == 1
    assert searched([1.5, 0.5]) == 2


class Counted(float):
    differences = 0

    def __sub__(self, other):
        Counted.differences += 1
        return float(self) - float(other)


def test_pasha_compares_each_new_result_with_the_others_once():
    scheduler, count = make("pasha", rungs=[1, 2, 4], factor=1.01), 60
    Counted.differences = 0
    for number in range(count):
        ended(scheduler, number, Counted(number), 1)
    for number in range(count):
        ended(scheduler, number, Counted(number), 2, rung=1)
    assert scheduler.highest == 1 and Counted.differences <= count**2


@pytest.mark.parametrize("seed", range(6))
def test_pasha_opens_the_levels_that_all_results_so_far_ask_for(seed):
    rng = random.Random(seed)
    levels, tolerance = [1, 2, 4, 8], rng.choice([0.0, 0.2])
    scheduler = make("pasha", rungs=levels, factor=1.5, tolerance=tolerance)
    told, highest = [{} for _ in levels], 1
    for number in sorted(range(40), key=lambda _: rng.random()):
        for rung in range(rng.randint(1, 4)):
            value = None if rng.random() < 0.1 else number / 40 + rng.random() * rng.choice([0.0, 0.1])
            ended(scheduler, number, value, levels[rung], rung)
            told[rung][number] = value
            if value is None:
                del told[rung][number]
            while highest < 3 and differ(told[highest], told[highest - 1], tolerance):
                highest += 1
            assert scheduler.highest == highest


def differ(above, below, tolerance):
    both = [each for each in above if each in below]
    pairs = ((one, other) for one in both for other in both)
    return any(above[a] - above[b] > tolerance and below[b] - below[a] > tolerance for a, b in pairs)


def test_pasha_ignores_differences_within_its_tolerance():
    scheduler = make("pasha", rungs=[1, 2, 4], factor=1.5, tolerance=2.0)
    for number, (first, second) in enumerate([(1.0, 1.5), (2.0, 0.5), (3.0, 0.6)]):
        ended(scheduler, number, first, 1)
        ended(scheduler, number, second, 2, rung=1)
    assert scheduler.highest == 1


def with_complete_curves(scheduler, count, rng):
    """Trials that end 1.0 below their first value, give or take 0.1."""
    for number in range(count):
        first = 4.0 + rng.random()
        ended(scheduler, number, first, 2)
        ended(scheduler, number, first - 0.6, 5, 1)
        ended(scheduler, number, first - 1.0 + rng.uniform(-0.1, 0.1), 10, 2)


def test_extrapolation_stops_a_trial_that_is_unlikely_to_become_the_best():
    scheduler, rng = make("extrapolation", rungs=[2, 5, 10], full=8), random.Random(0)
    with_complete_curves(scheduler, 8, rng)
    ended(scheduler, 8, 4.9, 2)
    ended(scheduler, 9, 3.9, 2)
    ended(scheduler, 10, None, 2)
    assert scheduler.promotion() == Promotion(9, 1, 5)
    assert set(scheduler.stopped) == {8} and scheduler.stopped[8][1] < 0.05


def test_extrapolation_trains_in_full_until_enough_curves_are_complete():
    scheduler = make("extrapolation", rungs=[2, 5], full=6)
    for number in range(5):
        ended(scheduler, number, 9.0 - number, 2)
        assert scheduler.promotion() == Promotion(number, 1, 5)
        ended(scheduler, number, None, 5, 1)
    ended(scheduler, 5, 50.0, 2)
    assert scheduler.promotion() == Promotion(5, 1, 5), "the trials before it failed, so nothing is known yet"


def test_extrapolation_on_the_front_compares_with_trials_that_cost_no_more():
    scheduler, rng = make("extrapolation", rungs=[2, 10], full=8, rank="pareto"), random.Random(1)
    for number in range(8):
        first = 4.0 + rng.random()
        scheduler.tell(number, 0, (first, 100.0), 2)
        scheduler.tell(number, 1, (first - 1.0, 100.0), 10)
    scheduler.tell(8, 0, (9.0, 100.0), 2)
    scheduler.tell(9, 0, (9.0, 50.0), 2)
    assert scheduler.promotion().number == 9 and set(scheduler.stopped) == {8}


def test_the_probability_of_extrapolation_is_how_often_it_happens():
    rng = np.random.default_rng(0)
    first = rng.uniform(4, 5, 3_000)
    last = first - 1 + 0.1 * rng.standard_normal(3_000)
    chances = [
        chance_below(first[start : start + 40, None], last[start : start + 40], first[start + 40 : start + 41], 3.4)
        for start in range(0, 2_900, 7)
    ]
    happened = [last[start + 40] <= 3.4 for start in range(0, 2_900, 7)]
    assert np.mean(chances) == pytest.approx(np.mean(happened), abs=0.06)
    assert np.mean([hit for hit, chance in zip(happened, chances) if chance < 0.2]) < 0.1


def test_a_study_of_an_earlier_version_extrapolates_as_it_did():
    earlier = registry.earlier("extrapolation")
    scheduler = make("extrapolation", rungs=[2, 5, 10], **earlier)
    assert scheduler.settled == earlier == {"scale": "plain", "probability": 0.05, "diverged": "counted"}
    today = {"scale": "logarithm", "probability": 0.01, "diverged": "fenced"}
    assert make("extrapolation", rungs=[2, 5, 10]).settled == today


@pytest.mark.parametrize("diverged", [50.0, 1e4, 1e30, 1.7e308])
def test_extrapolation_judges_others_as_before_if_some_runs_diverge(diverged):
    calm = make("extrapolation", rungs=[2, 5, 10], full=8)
    stormy = make("extrapolation", rungs=[2, 5, 10], full=8)
    for scheduler in (calm, stormy):
        with_complete_curves(scheduler, 24, random.Random(0))
    for number, values in enumerate([(4.4, 3.9, diverged), (4.3, diverged, diverged)], 24):
        for rung, (value, steps) in enumerate(zip(values, [2, 5, 10])):
            ended(stormy, number, value, steps, rung)
    for number, first in enumerate([4.9, 4.7, diverged, 3.9], 26):
        for scheduler in (calm, stormy):
            ended(scheduler, number, first, 2)
    assert {26, 27, 28} <= calm.stopped.keys() == stormy.stopped.keys() - {24, 25}
    assert stormy.promotion() == Promotion(29, 1, 5)


@pytest.mark.parametrize(("options", "hurdle"), [({}, 4.4), (registry.earlier("hurdles"), 2002.8)])
def test_a_diverged_loss_that_is_finite_counts_as_the_fence(options, hurdle):
    """The quartiles are 3 and 5, so the fence is at 8. A study of an earlier version counts the loss as it is."""
    scheduler = make("hurdles", rungs=[1, 2], wait=5, **options)
    for number, value in enumerate([2.0, 3.0, 1e4, 4.0, 5.0]):
        ended(scheduler, number, value, 1)
    assert scheduler.hurdles == [pytest.approx(hurdle)]


def test_hurdles_survive_losses_whose_sum_is_too_large():
    scheduler = make("hurdles", rungs=[1, 2], wait=4)
    for number, value in enumerate([1.7e308, 1.7e308, 1.7e308, 1.0]):
        ended(scheduler, number, value, 1)
    assert scheduler.hurdles == [pytest.approx(1.275e308)]
