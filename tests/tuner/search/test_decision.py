"""Which finalist serves, and what that may cost."""

import pytest

from kernels.dispatch.registry import Choice, Problem
from tuner.measure.measure import timing
from tuner.outcome import Kind, Outcome
from tuner.search.cache import Known
from tuner.search.decision import decide, expected_regret

PROBLEM = Problem("scale", "cpu", "float32", (("rows", 4),))
DEFAULT, OTHER, THIRD = (Choice.of(name) for name in ("default", "other", "third"))


def finals(**samples):
    return {
        Choice.of(name): Known(Outcome(Kind.TIMED, tuple(times)), timing(times).median)
        for name, times in samples.items()
    }


def test_another_replaces_the_default_when_every_pair_says_so():
    found = finals(default=[2.0, 4.0, 6.0, 8.0, 2.0, 2.0], other=[1.0, 2.0, 3.0, 4.0, 1.0, 1.0])
    decision = decide(PROBLEM, DEFAULT, found, found)

    assert (decision.choice, decision.gain.median, decision.gain.low) == (OTHER, 2.0, 2.0)


def test_too_few_rounds_replace_nothing():
    found = finals(default=[2.0, 2.0, 2.0], other=[1.0, 1.0, 1.0])
    decision = decide(PROBLEM, DEFAULT, found, found)

    assert decision.choice == DEFAULT
    assert decision.why == "other was faster than the default, but in too few rounds to tell"


def test_the_default_stays_when_the_interval_holds_one():
    found = finals(default=[1.0, 1.2, 1.0, 1.2, 1.0, 1.2], other=[1.1, 1.0, 1.1, 1.0, 1.1, 1.0])
    decision = decide(PROBLEM, DEFAULT, found, found)

    assert (decision.choice, decision.gain) == (DEFAULT, None)
    assert decision.why == "other is not faster than the default by more than the noise [0.91, 1.20]"


def test_the_risk_is_how_much_faster_any_other_finalist_may_be():
    found = finals(default=[2.0] * 6, other=[1.0] * 6, third=[1.02] * 4 + [0.5] * 2)
    decision = decide(PROBLEM, DEFAULT, found, found)

    assert (decision.choice, decision.risk) == (OTHER, 2.0)
    assert decide(PROBLEM, DEFAULT, {DEFAULT: found[DEFAULT]}, found).risk == 1.0


@pytest.mark.parametrize(("kind", "choice"), [("wrong", DEFAULT), ("crashed", DEFAULT), ("out_of_memory", OTHER)])
def test_what_was_found_wrong_after_its_comparison_cannot_win(kind, choice):
    found = finals(default=[2.0] * 7, other=[1.0] * 7)
    since = found | {OTHER: Known(Outcome(Kind(kind)), None)}

    assert decide(PROBLEM, DEFAULT, found, since).choice == choice


def test_a_default_that_is_as_fast_is_the_fastest():
    found = finals(other=[1.0, 1.0], default=[1.0, 1.0])
    assert decide(PROBLEM, DEFAULT, found, found).why == "the default is the fastest of the 2 that were compared"


def test_the_regret_of_a_clear_choice_is_one_and_that_of_a_toss_is_above():
    clear = {OTHER: timing([1.0, 1.1, 1.0]), DEFAULT: timing([5.0, 5.1, 5.2])}
    toss = {OTHER: timing([1.0, 1.2, 1.1, 1.4]), DEFAULT: timing([1.1, 1.0, 1.3, 1.1])}

    assert expected_regret(clear, OTHER, 0) == pytest.approx(1.0)
    assert expected_regret(clear, DEFAULT, 0) == pytest.approx(5.0, rel=0.1)
    assert 1.0 < expected_regret(toss, OTHER, 0) < 1.2
    assert expected_regret(toss, OTHER, 0) == expected_regret(toss, OTHER, 0)
