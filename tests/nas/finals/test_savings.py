"""How much less training a winner needs: where curves cross, and what that saves."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nas.finals.savings import Reach, crossing, reach, savings, sentence
from nas.finals.verdict import Comparison

COSTS = {"shortest": 100, "longest": 400, "flops": (1.0, 2.0), "speeds": (30.0, 20.0), "parameters": (80, 100)}


def comparison(difference, low, high):
    word = "no difference shown"
    return Comparison(word=word, difference=difference, low=low, high=high, confidence=0.95, runs=(3, 3))


def test_the_crossing_is_interpolated_over_the_logarithm_of_the_steps():
    assert crossing([100, 400], [0.1, -0.1]) == pytest.approx(200)
    assert crossing([100, 400], [0.3, -0.1]) == pytest.approx(100 * 4**0.75)
    assert crossing([100, 400], [-0.1, -0.2]) == 100
    assert crossing([100, 400], [0.2, 0.1]) is None
    assert crossing([100, 400], [math.inf, -0.1]) == 400


@given(st.floats(0.01, 1), st.floats(0.01, 1), st.floats(0, 0.5))
def test_a_wider_interval_of_the_differences_gives_a_wider_one_of_the_steps(first, last, half):
    found = reach(
        {100: comparison(first, first - half, first + half), 400: comparison(-last, -last - half, -last + half)}
    )
    assert 100 <= found.low <= found.steps <= (found.high or math.inf)


def said(found):
    return sentence(savings(found, **COSTS), "trial 3", "the best baseline", 400)


def test_what_is_saved_counts_the_cost_of_a_step():
    found = savings(Reach(200, 150, 400), **COSTS)
    assert (found.flops, found.low, found.high) == (0.75, 0.5, 0.8125)
    assert found.seconds == pytest.approx(1 - 20 / 30 / 2) and found.parameters == pytest.approx(0.2)
    assert said(Reach(200, 150, 400)) == (
        "trial 3 reaches what the best baseline reaches after 400 steps with 75 % fewer training FLOPs "
        "(95 % interval 50 % fewer to 81 % fewer; 67 % less time, 20 % fewer parameters)."
    )


def test_a_winner_that_never_arrives_saves_nothing():
    assert savings(Reach(None, None, None), **COSTS).flops is None
    assert "does not reach" in said(Reach(None, None, None))


def test_an_end_that_was_not_reached_is_not_made_up():
    assert savings(Reach(200, 150, None), **COSTS).low is None
    assert "interval: no lower end, because it may need more than the longest run, to 81 % fewer" in said(
        Reach(200, 150, None)
    )
    assert "(no interval" in said(Reach(200, 100, None))


def test_what_is_reached_at_the_shortest_length_is_a_bound_and_no_estimate():
    assert "with 75 % fewer training FLOPs (95 % interval 62 % fewer to at least 88 % fewer" in said(
        Reach(200, 100, 300)
    )
    both = said(Reach(100, 100, 100))
    assert "with at least 88 % fewer training FLOPs (95 % interval: at least 88 % fewer; at least 83 % less" in both


def test_a_winner_with_expensive_steps_may_need_more():
    costs = COSTS | {"flops": (6.0, 1.0)}
    found = sentence(savings(Reach(100, 100, 100), **costs), "trial 3", "the best baseline", 400)
    assert "with at most 50 % more training FLOPs (95 % interval: at most 50 % more" in found


def test_one_seed_has_no_interval_of_the_savings():
    found = reach({100: comparison(0.1, None, None), 400: comparison(-0.1, None, None)})
    assert found.steps == pytest.approx(200) and "(no interval" in said(found)
