"""The interval of a difference: what it covers, what changes it, and how often it is wrong."""

import json
import math
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ttest_rel

from nas.documents import Documents
from nas.finals.interval import Runs, compare


def entrant(values: np.ndarray, weights: np.ndarray, *, first: int = 0, failed: int = 0) -> Runs:
    """Runs with the `values` [S, D] of documents."""
    names = tuple(f"document {number}" for number in range(len(weights)))
    documents = tuple(Documents("bits", names, row * weights, weights) for row in values)
    means = tuple(float(row @ weights / weights.sum()) for row in values)
    return Runs(tuple(range(first, first + len(values))), means, documents, failed)


def plain(*values: float, first: int = 0, failed: int = 0) -> Runs:
    """Runs without documents."""
    return Runs(tuple(range(first, first + len(values))), values, None, failed)


def final(seed: int, seeds: int = 3, documents: int = 40, lead: float = 0.0) -> tuple[Runs, Runs]:
    """Two entrants whose runs differ by seed, by document and by both; the first one leads."""
    random = np.random.default_rng(seed)
    weights = random.lognormal(0, 1, documents)
    base = random.normal(2.5, 0.3, documents)

    def values() -> np.ndarray:
        spread = random.normal(0, 0.008, (seeds, 1)) + random.normal(0, 0.018, documents)
        return base + spread + random.normal(0, 0.007, (seeds, documents))

    return entrant(values() - lead, weights), entrant(values(), weights)


def test_without_documents_it_is_students_paired_interval():
    ours, theirs = [2.1, 2.3, 2.2, 2.15], [2.4, 2.35, 2.5, 2.3]
    expected = ttest_rel(ours, theirs).confidence_interval(0.9)

    found = compare(plain(*ours), plain(*theirs), confidence=0.9)

    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), rel=1e-5)
    assert found.word == "better" and found.documents == 0 and found.seed_share == 1 and found.seeds == 4


def test_the_interval_allows_for_other_documents():
    """The runs of all seeds agree, and the documents differ: seeds alone would be sure of anything."""
    differences = np.random.default_rng(0).normal(0, 0.02, 40)
    runs = entrant(np.tile(2.5 + differences, (3, 1)), np.ones(40)), entrant(np.full((3, 40), 2.5), np.ones(40))

    found = compare(*runs)

    error = differences.std(ddof=1) / math.sqrt(40)
    assert found.word == "no difference shown" and found.seed_share == pytest.approx(0, abs=1e-9)
    assert found.high - found.low == pytest.approx(2 * 2.02 * error, rel=0.06)  # Student's t, 39 degrees of freedom


def test_seed_by_document_is_counted_once():
    """Noise of single runs on single documents alone: the variance of the mean is its variance / (S D)."""
    random = np.random.default_rng(3)
    shares, widths = [], []
    for _ in range(20):
        runs = [entrant(2 + random.normal(0, 0.1, (8, 60)), np.ones(60)) for _ in range(2)]
        found = compare(*runs)
        shares.append(found.seed_share)
        widths.append((found.high - found.low) / 2)

    assert np.mean(shares) > 0.8
    assert 1.9 < np.mean(widths) / (0.1 * math.sqrt(2 / (8 * 60))) < 2.6  # counted twice it would be 3.0 or more


def test_few_heavy_documents_widen_the_interval():
    values = np.random.default_rng(1).normal(0, 0.02, 40)
    heavy = np.r_[np.full(2, 200.0), np.ones(38)]
    widths = []
    for weights in (np.ones(40), heavy):
        found = compare(entrant(np.tile(values, (3, 1)), weights), entrant(np.zeros((3, 40)), weights))
        widths.append(found.high - found.low)

    assert widths[1] > 3 * widths[0]


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), seeds=st.integers(2, 5), documents=st.integers(1, 60))
def test_properties_of_every_interval(seed, seeds, documents):
    ours, theirs = final(seed, seeds, documents)
    found = compare(ours, theirs)
    random = np.random.default_rng(seed)
    order, places = random.permutation(seeds), random.permutation(documents)

    def moved(runs: Runs, by: float) -> Runs:
        rows = [each.values + by for each in runs.documents]
        return entrant(np.stack(rows), runs.documents[0].weights)

    def shuffled(runs: Runs) -> Runs:
        def mixed(each: Documents) -> Documents:
            names = tuple(each.names[place] for place in places)
            return Documents(each.metric, names, each.totals[places], each.weights[places])

        return Runs(
            tuple(runs.seeds[i] for i in order),
            tuple(runs.values[i] for i in order),
            tuple(mixed(runs.documents[i]) for i in order),
        )

    swapped = compare(theirs, ours)
    shifted = compare(moved(ours, 0.5), moved(theirs, 0.25))
    wider = compare(ours, theirs, confidence=0.99)
    chosen = compare(ours, theirs, chosen_from=3)

    assert found.low <= found.difference <= found.high
    assert compare(shuffled(ours), theirs) == found == compare(ours, shuffled(theirs))
    assert (swapped.low, swapped.high) == pytest.approx((-found.high, -found.low), abs=1e-9)
    assert (shifted.low, shifted.high) == pytest.approx((found.low + 0.25, found.high + 0.25), abs=1e-6)
    assert wider.low < found.low and wider.high > found.high
    assert chosen.high > found.high and chosen.low == found.low


def test_a_metric_that_is_maximised_gives_the_same_interval():
    """Its runs are turned into values to be minimised; its documents are kept as they were measured."""
    ours, theirs = final(5)

    def turned(runs: Runs) -> Runs:
        documents = tuple(replace(each, totals=-each.totals) for each in runs.documents)
        return replace(runs, documents=documents)

    assert compare(turned(ours), turned(theirs)) == compare(ours, theirs)


def test_a_maximised_metric_that_is_zero_in_one_run_keeps_its_sign():
    parts = np.tile([1.0, -1.0], 10)
    values = np.stack([parts, parts + 0.1, parts + 0.2])  # the first run has the value 0, which has no sign
    better = np.stack([parts + 0.5] * 3) + np.linspace(0, 0.1, 20)
    names, ones = tuple(map(str, range(20))), np.ones(20)

    def maximised(some):
        documents = tuple(Documents("score", names, row, ones) for row in some)
        return Runs((0, 1, 2), tuple(-each.value for each in documents), documents)

    verdict = compare(maximised(better), maximised(values))
    shifted = compare(maximised(better + 5), maximised(values + 5))
    assert (verdict.low, verdict.high) == pytest.approx((shifted.low, shifted.high))


def test_one_seed_gives_no_interval():
    found = compare(*final(0, seeds=1, lead=0.5))

    assert (found.word, found.low, found.high) == ("no difference shown", None, None)
    assert found.difference == pytest.approx(-0.5, abs=0.1) and "two seeds" in found.reason


def test_without_runs_the_difference_is_not_known():
    assert compare(plain(), plain(1.0)).difference is None


def test_fewer_than_ten_documents_are_not_resampled():
    ours, theirs = final(0, documents=9)
    found = compare(ours, theirs)

    assert found.documents == 0 and "9 held-out documents: too few to resample" in found.reason
    without = compare(replace(ours, documents=None), replace(theirs, documents=None))
    assert (found.low, found.high) == (without.low, without.high)


def test_runs_without_any_spread_have_an_interval_without_width():
    found = compare(plain(1.0, 1.0), plain(1.5, 1.5))

    assert (found.word, found.low, found.high) == ("better", -0.5, -0.5)
    assert compare(plain(1.0, 1.0), plain(1.0, 1.0)).word == "no difference shown"


def test_a_candidate_with_failed_runs_is_never_better():
    ours, theirs = final(0, lead=0.3)

    assert compare(ours, theirs).word == "better"
    found = compare(replace(ours, failed=1), theirs)
    assert found.word == "no difference shown" and found.high < 0 and found.failed == (1, 0)
    assert "1 run of the candidate failed" in found.reason


def test_failed_runs_of_the_baseline_are_reported():
    ours, theirs = final(0, lead=0.3)
    found = compare(ours, replace(theirs, failed=2))

    assert found.word == "better" and found.failed == (0, 2) and "2 runs of the baseline failed" in found.reason
    assert compare(replace(theirs, failed=1), ours).word == "worse"


def test_a_seed_that_failed_for_one_entrant_is_left_out_for_both():
    found = compare(plain(1.0, 1.2, 1.1, first=5), plain(9.0, 2.0, 2.1, first=4))

    assert found.seeds == 2 and found.runs == (3, 3)
    assert found.difference == pytest.approx(-0.95)
    assert found == compare(Runs((6, 5, 7), (1.2, 1.0, 1.1)), Runs((5, 6, 4), (2.0, 2.1, 9.0)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: compare(final(0)[0], final(0, documents=41)[1]), "same documents.*document 40"),
        (lambda: compare(final(0)[0], final(1)[1]), "same weight"),
        (lambda: compare(replace(final(0)[0], values=(1.0, 2.0, 3.0)), final(0)[1]), "must give its value 1,"),
    ],
)
def test_says_what_is_wrong_with_the_runs(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(("chosen_from", "documents"), [(1, 0), (1, 40), (3, 40)])
def test_equal_entrants_are_rarely_called_better(chosen_from, documents):
    """At nominal 2.5 %. The candidate is the best of `chosen_from` on validation data that share the seeds' luck."""
    random = np.random.default_rng(7)
    weights = random.lognormal(0, 1, max(documents, 1))
    better = 0
    for _ in range(250):
        luck = random.normal(0, 0.008, (chosen_from + 1, 3))
        best = int(luck[:-1].mean(1).argmin())
        if not documents:
            better += compare(plain(*luck[best]), plain(*luck[-1])).word == "better"
            continue
        values = luck[:, :, None] + random.normal(0, 0.018, (chosen_from + 1, 1, documents)) + 2
        runs = [entrant(values[row], weights) for row in (best, -1)]
        better += compare(*runs, chosen_from=chosen_from).word == "better"

    assert 1 <= better <= 13  # 0.4 % to 5.2 %: 250 draws cannot tell more


def test_needs_no_torch():
    code = "import sys, json, nas.finals.lengths, nas.finals.sentence; print(json.dumps(sorted(sys.modules)))"
    modules = json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)

    assert not {"torch", "scipy"} & set(modules)
