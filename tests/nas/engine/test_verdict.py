"""The verdict against SciPy's own tests, and its words."""

import math
from statistics import fmean, variance

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from nas.engine.verdict import compare, rank_correlation

numbers = st.floats(-100, 100).map(lambda x: round(x, 3))
runs = st.lists(numbers, min_size=2, max_size=8)
confidences = st.sampled_from([0.5, 0.9, 0.95, 0.99])


def varied(*lists):
    return all(len(set(values)) > 1 for values in lists)


@given(runs.filter(varied), runs.filter(varied), confidences)
def test_the_interval_is_welchs(candidate, baseline, confidence):
    verdict = compare(candidate, baseline, confidence=confidence)
    expected = stats.ttest_ind(candidate, baseline, equal_var=False).confidence_interval(confidence)
    assert (verdict.low, verdict.high) == pytest.approx((expected.low, expected.high), rel=1e-6, abs=1e-9)


@given(st.lists(st.tuples(numbers, numbers), min_size=2, max_size=8), confidences)
def test_the_paired_interval_is_students(pairs, confidence):
    candidate, baseline = (list(values) for values in zip(*pairs))
    verdict = compare(candidate, baseline, confidence=confidence, paired=True)
    if len({round(a - b, 6) for a, b in pairs}) > 1:
        expected = stats.ttest_rel(candidate, baseline).confidence_interval(confidence)
        assert (verdict.low, verdict.high) == pytest.approx((expected.low, expected.high), rel=1e-6, abs=1e-9)
    else:
        assert verdict.high - verdict.low < 1e-6


def by_hand(candidate, baseline, confidence, paired):
    """The interval by the formulas of the papers."""
    if paired:
        differences = [a - b for a, b in zip(candidate, baseline, strict=True)]
        error, freedom = math.sqrt(variance(differences) / len(differences)), len(differences) - 1
    else:
        parts = [variance(values) / len(values) for values in (candidate, baseline)]
        spread = sum(part**2 / (len(values) - 1) for part, values in zip(parts, (candidate, baseline)))
        error, freedom = math.sqrt(sum(parts)), sum(parts) ** 2 / spread if spread else 1.0
    margin = float(stats.t.ppf((1 + confidence) / 2, freedom)) * error
    difference = fmean(candidate) - fmean(baseline)
    return difference - margin, difference + margin


@given(st.lists(st.tuples(numbers, numbers), min_size=2, max_size=8), confidences, st.booleans())
def test_the_interval_is_that_of_the_formulas(pairs, confidence, paired):
    candidate, baseline = (list(values) for values in zip(*pairs))
    verdict = compare(candidate, baseline, confidence=confidence, paired=paired)
    expected = by_hand(candidate, baseline, confidence, paired)
    assert (verdict.low, verdict.high) == pytest.approx(expected, rel=1e-6, abs=1e-9)


@given(runs, runs)
def test_the_word_follows_from_the_interval(candidate, baseline):
    verdict = compare(candidate, baseline)
    assert verdict.low <= verdict.difference <= verdict.high
    assert (verdict.word == "better") == (verdict.high < 0)
    assert (verdict.word == "worse") == (verdict.low > 0)


@given(runs, runs)
def test_exchanging_the_two_mirrors_the_verdict(candidate, baseline):
    mirrored = {"better": "worse", "worse": "better"}
    one, other = compare(candidate, baseline), compare(baseline, candidate)
    assert one.word == mirrored.get(other.word, other.word)
    assert one.low == pytest.approx(-other.high)


def test_lower_is_better():
    assert compare([1.0, 1.1, 0.9], [2.0, 2.1, 1.9]).word == "better"
    assert compare([2.0, 2.1, 1.9], [1.0, 1.1, 0.9]).word == "worse"
    assert compare([1.0, 2.0, 3.0], [1.1, 2.1, 2.9]).word == "no difference shown"


def test_pairing_by_seed_shows_what_the_seeds_hide():
    baseline = [1.0, 2.0, 3.0, 4.0]
    candidate = [value - 0.1 + wobble for value, wobble in zip(baseline, [0.01, -0.01, 0.01, -0.01])]
    assert compare(candidate, baseline).word == "no difference shown"
    assert compare(candidate, baseline, paired=True).word == "better"


@pytest.mark.parametrize("candidate, baseline", [([1.0], [5.0, 5.1]), ([1.0, 1.1], [5.0]), ([], [5.0]), ([], [])])
def test_too_few_runs_show_nothing_and_say_why(candidate, baseline):
    verdict = compare(candidate, baseline)
    assert verdict.word == "no difference shown"
    assert (verdict.low, verdict.high) == (-math.inf, math.inf)
    assert f"there are {len(candidate)} and {len(baseline)}" in verdict.sentence()
    assert "nan" not in verdict.sentence() and "inf" not in verdict.sentence()


def test_equal_runs_show_no_difference():
    assert compare([2.0, 2.0], [2.0, 2.0]).word == "no difference shown"


def test_the_sentence_gives_the_difference_the_interval_and_the_runs():
    sentence = compare([1.0, 1.1, 0.9], [2.0, 2.1, 1.9]).sentence("bits per byte", "trial 7", "the Transformer")
    assert sentence == (
        "trial 7: better than the Transformer. Difference in bits per byte: -1, 95% interval -1.227 to -0.7733, "
        "lower is better, from 3 and 3 runs."
    )


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"candidate": [1.0, math.nan], "baseline": [1.0, 2.0]}, "every run needs a finite value"),
        ({"candidate": [1.0, 2.0], "baseline": [1.0, 2.0, 3.0], "paired": True}, "must come in pairs, but got 2 and 3"),
        ({"candidate": [1.0, 2.0], "baseline": [1.0, 2.0], "confidence": 95}, "between 0 and 1, but got 95"),
    ],
)
def test_refuses_what_it_cannot_judge(arguments, message):
    with pytest.raises(ValueError, match=message):
        compare(**arguments)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=2, max_size=12))
def test_the_rank_correlation_is_spearmans(pairs):
    one, other = (list(values) for values in zip(*pairs))
    found = rank_correlation(one, other)
    if varied(one, other):
        assert found == pytest.approx(stats.spearmanr(one, other).statistic)
    else:
        assert math.isnan(found)
