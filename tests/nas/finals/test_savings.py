"""How much less training a winner needs: where curves cross, and what that saves."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nas.finals.interval import Verdict
from nas.finals.savings import Reach, crossing, reach, savings, sentence

COSTS = {"shortest": 100, "longest": 400, "flops": (1.0, 2.0), "speeds": (30.0, 20.0), "parameters": (80, 100)}


def verdict(difference, low, high):
    return Verdict("no difference shown", difference, low, high, 0.95, (3, 3))


def test_the_crossing_is_interpolated_over_the_logarithm_of_the_steps():
    assert crossing([100, 400], [0.1, -0.1]) == pytest.approx(200)
    assert crossing([100, 400], [0.3, -0.1]) == pytest.approx(100 * 4**0.75)
    assert crossing([100, 400], [-0.1, -0.2]) == 100
    assert crossing([100, 400], [0.2, 0.1]) is None
    assert crossing([100, 400], [math.inf, -0.1]) == 400


@given(st.floats(0.01, 1), st.floats(0.01, 1), st.floats(0, 0.5))
def test_a_wider_interval_of_the_differences_gives_a_wider_one_of_the_steps(first, last, half):
    found = reach({100: verdict(first, first - half, first + half), 400: verdict(-last, -last - half, -last + half)})
    assert 100 <= found.low <= found.steps <= (found.high or math.inf)


def test_what_is_saved_counts_the_cost_of_a_step():
    found = savings(Reach(200, 100, 400), **COSTS)
    assert (found.flops, found.low, found.high) == (0.75, 0.5, 0.875)
    assert found.seconds == pytest.approx(1 - 20 / 30 / 2) and found.parameters == pytest.approx(0.2)
    assert sentence(found, "trial 3", "the best baseline", 400) == (
        "trial 3 reaches what the best baseline reaches after 400 steps with 75 % less training FLOPs "
        "(95 % interval 50 % to 88 % less; 67 % less time, 20 % less parameters)."
    )


def test_a_winner_that_never_arrives_saves_nothing():
    found = savings(Reach(None, None, None), **COSTS)
    assert found.flops is None and "does not reach" in sentence(found, "trial 3", "the best baseline", 400)


def test_an_end_that_was_not_reached_is_not_made_up():
    found = savings(Reach(200, 100, None), **COSTS)
    assert found.low is None and "unknown to 88 %" in sentence(found, "trial 3", "the best baseline", 400)
