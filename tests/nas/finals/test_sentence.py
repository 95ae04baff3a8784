"""The result of the finals as people read it."""

import math

import pytest

from nas.finals.interval import Verdict
from nas.finals.lengths import Lengths, Trend
from nas.finals.sentence import sentence


def verdict(difference: float = -0.1, word: str = "better", reason: str = "", documents: int = 48) -> Verdict:
    bounds = (difference - 0.02, difference + 0.02, 0.95)
    return Verdict(word, difference, *bounds, (3, 3), reason, seeds=3, documents=documents)


def test_a_lead_that_lasts():
    trend = Trend("holds", 0.01, -0.01, 0.03)
    lengths = Lengths("is better", {1080: verdict(-0.09), 360: verdict()}, trend)

    said = sentence(lengths, metric="bits per byte on test data", candidate="trial 17", baseline="primer (deep)")

    assert said == (
        "Trial 17 is better than primer (deep): difference in bits per byte on test data (lower is better) "
        "-0.1 (95 % interval -0.12 to -0.08) after 360 steps, -0.09 (95 % interval -0.11 to -0.07) after 1,080 steps; "
        "3 seeds, 48 held-out documents. The lead holds from 360 to 1,080 steps (change of the difference +0.01, "
        "-0.01 to +0.03)."
    )


def test_a_lead_that_shrinks_and_one_that_is_gone():
    trend = Trend("shrinks", 0.09, 0.05, 0.13)
    smaller = sentence(Lengths("learns faster", {360: verdict(), 1080: verdict(-0.03)}, trend), metric="bits")
    gone = {360: verdict(), 1080: verdict(-0.01, "no difference shown")}

    assert "learns faster than the baseline, and its lead gets smaller: " in smaller
    assert "learns faster than the baseline, but it is not shown to end better: " in sentence(
        Lengths("learns faster", gone, trend), metric="bits"
    )


def test_no_difference_has_no_lead_to_speak_of():
    trend = Trend("no change shown", 0.0, -0.1, 0.1)
    equal = verdict(0.0, "no difference shown")
    said = sentence(Lengths("no difference shown", {360: equal, 1080: equal}, trend), metric="bits")

    assert said.startswith("No difference shown between the candidate and the baseline: ") and "lead" not in said


@pytest.mark.parametrize(("compute", "named"), [(None, ""), (1.09, ""), (0.92, ""), (2.13, "2.1"), (0.5, "0.5")])
def test_the_compute_ratio_is_named_if_it_differs(compute, named):
    said = sentence(Lengths("worse", {360: verdict(0.1, "worse")}, None), metric="bits", compute=compute)

    assert (f"uses {named} times the training compute" in said) == bool(named)


def test_what_was_left_out_and_what_failed():
    reason = "1 run of the baseline failed"
    lengths = Lengths("is better", {360: verdict(reason=reason), 1080: verdict()}, None)
    said = sentence(lengths, metric="bits", left_out=("matching by latency", "tuning"))

    assert "After 360 steps: 1 run of the baseline failed." in said
    assert "Left out: matching by latency, tuning." in said and "Whether the lead lasts is not known." in said


def test_one_length_without_documents():
    said = sentence(Lengths("is better", {1: verdict(documents=0, reason="9 held-out documents")}, None), metric="loss")

    assert "after 1 step; 3 seeds, always on the same held-out data. One length was trained" in said
    assert said.endswith("9 held-out documents.")


def test_a_metric_that_is_maximised_is_shown_with_its_own_sign():
    said = sentence(Lengths("is better", {9: verdict(-0.1)}, None), metric="accuracy", maximised=True)

    assert "accuracy (higher is better) +0.1 (95 % interval +0.08 to +0.12)" in said


def test_without_an_interval_it_says_so():
    one = Verdict("no difference shown", -0.1, -math.inf, math.inf, 0.95, (1, 1), "two seeds are needed", seeds=1)
    none = Verdict("no difference shown", math.nan, -math.inf, math.inf, 0.95, (0, 1), "two seeds are needed")

    assert "-0.1 (no interval) after 9 steps; 1 seed" in sentence(
        Lengths("no difference shown", {9: one}, None), metric="bits"
    )
    assert "unknown after 9 steps" in sentence(Lengths("no difference shown", {9: none}, None), metric="bits")
