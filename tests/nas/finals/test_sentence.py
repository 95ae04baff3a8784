"""The result of the finals as people read it."""

import pytest

from nas.finals.sentence import sentence
from nas.finals.verdict import Comparison, Comparisons, Trend


def comparison(
    difference: float | None = -0.1,
    word: str = "better",
    reason: str = "",
    documents: int = 48,
    half: float | None = 0.02,
) -> Comparison:
    known = difference is not None and half is not None
    return Comparison(
        word=word,
        difference=difference,
        low=difference - half if known else None,
        high=difference + half if known else None,
        confidence=0.95,
        runs=(3, 3),
        reason=reason,
        seeds=3,
        documents=documents,
    )


def comparisons(word: str, lengths: dict[int, Comparison], trend: Trend | None) -> Comparisons:
    return Comparisons(word=word, lengths=lengths, trend=trend)


def trend_of(word: str, change: float, low: float, high: float) -> Trend:
    return Trend(word=word, change=change, low=low, high=high)


def test_a_lead_that_lasts():
    trend = trend_of("holds", 0.01, -0.01, 0.03)
    lengths = comparisons("is better", {1080: comparison(-0.09), 360: comparison()}, trend)

    said = sentence(lengths, metric="bits per byte on test data", candidate="trial 17", baseline="primer (deep)")

    assert said == (
        "Trial 17 is better than primer (deep): difference in bits per byte on test data (lower is better) "
        "-0.1 (95 % interval -0.12 to -0.08) after 360 steps, -0.09 (95 % interval -0.11 to -0.07) after 1,080 steps; "
        "3 seeds, 48 held-out documents. The lead holds from 360 to 1,080 steps (change of the difference +0.01, "
        "-0.01 to +0.03)."
    )


def test_a_lead_that_shrinks_and_one_that_is_gone():
    trend = trend_of("shrinks", 0.09, 0.05, 0.13)
    smaller = sentence(comparisons("learns faster", {360: comparison(), 1080: comparison(-0.03)}, trend), metric="bits")
    gone = {360: comparison(), 1080: comparison(-0.01, "no difference shown")}

    assert "learns faster than the baseline, and its lead gets smaller: " in smaller
    assert "learns faster than the baseline, but it is not shown to end better: " in sentence(
        comparisons("learns faster", gone, trend), metric="bits"
    )


def test_no_difference_has_no_lead_to_speak_of():
    trend = trend_of("no change shown", 0.0, -0.1, 0.1)
    equal = comparison(0.0, "no difference shown")
    said = sentence(comparisons("no difference shown", {360: equal, 1080: equal}, trend), metric="bits")

    assert said.startswith("No difference shown between the candidate and the baseline: ") and "lead" not in said


@pytest.mark.parametrize(("compute", "named"), [(None, ""), (1.09, ""), (0.92, ""), (2.13, "2.1"), (0.5, "0.5")])
def test_the_compute_ratio_is_named_if_it_differs(compute, named):
    said = sentence(comparisons("worse", {360: comparison(0.1, "worse")}, None), metric="bits", compute=compute)

    assert (f"uses {named} times the training compute" in said) == bool(named)


def test_what_failed_is_told_with_its_length():
    reason = "1 run of the baseline failed"
    lengths = comparisons("is better", {360: comparison(reason=reason), 1080: comparison()}, None)
    said = sentence(lengths, metric="bits")

    assert "After 360 steps: 1 run of the baseline failed." in said
    assert "Whether the lead lasts is not known." in said


def test_one_length_without_documents():
    said = sentence(
        comparisons("is better", {1: comparison(documents=0, reason="9 held-out documents")}, None), metric="loss"
    )

    assert "after 1 step; 3 seeds, always on the same held-out data. One length was trained" in said
    assert said.endswith("9 held-out documents.")


def test_a_metric_that_is_maximised_is_shown_with_its_own_sign():
    trend = trend_of("shrinks", 0.09, 0.05, 0.13)
    found = comparisons("is better", {3: comparison(), 9: comparison(-0.1)}, trend).negated()
    said = sentence(found, metric="accuracy", maximised=True)

    assert "accuracy (higher is better) +0.1 (95 % interval +0.08 to +0.12)" in said
    assert "(change of the difference -0.09, -0.13 to -0.05)" in said


def test_without_an_interval_it_says_so():
    word = "no difference shown"
    one = comparisons(word, {9: comparison(-0.1, word, half=None)}, None)
    none = comparisons(word, {9: comparison(None, word)}, None)

    assert "-0.1 (no interval) after 9 steps; 3 seeds" in sentence(one, metric="bits")
    assert "unknown after 9 steps" in sentence(none, metric="bits")
    assert none.negated() == none
