"""Hyperband and progressive dynamic hurdles: what each of them does beyond what every scheduler does."""

import pytest

from nas.errors import UsageError
from nas.schedulers.contract import Promotion
from nas.schedulers.registry import make


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


def test_a_diverged_loss_that_is_finite_counts_as_the_fence():
    """The quartiles are 3 and 5, so the fence is at 8."""
    scheduler = make("hurdles", rungs=[1, 2], wait=5)
    for number, value in enumerate([2.0, 3.0, 1e4, 4.0, 5.0]):
        ended(scheduler, number, value, 1)
    assert scheduler.hurdles == [pytest.approx(4.4)]


def test_hurdles_survive_losses_whose_sum_is_too_large():
    scheduler = make("hurdles", rungs=[1, 2], wait=4)
    for number, value in enumerate([1.7e308, 1.7e308, 1.7e308, 1.0]):
        ended(scheduler, number, value, 1)
    assert scheduler.hurdles == [pytest.approx(1.275e308)]
