"""The benchmark of verdicts draws equal entrants, and its old rule is Welch's."""

from statistics import fmean

import numpy as np
import pytest
from scipy.stats import ttest_ind

from benchmarks import verdict
from nas.documents import Documents
from nas.finals.interval import Runs


@pytest.mark.parametrize("documents", verdict.NUMBERS)
def test_simulated_entrants_share_documents_and_seeds(documents):
    case = verdict.Case(3, documents, top=2, baselines=3)
    entrants = verdict.simulated(np.random.default_rng(0), case)

    assert len(entrants) == 5 and {each.runs.seeds for each in entrants} == {(0, 1, 2)}
    scored = {each.runs.documents for each in entrants}
    assert scored == {None} or {len(run.names) for runs in scored for run in runs} == {verdict.NUMBERS[documents]}


def test_simulated_entrants_are_equal_and_lucky_in_both_parts_of_the_data():
    random = np.random.default_rng(0)
    case = verdict.Case(3, "none", top=2)
    finals = [verdict.simulated(random, case) for _ in range(300)]
    means = np.array([[fmean(each.runs.values) for each in final] for final in finals])  # [300, 3]
    validation = np.array([[each.validation for each in final] for final in finals])

    error = verdict.SEED_LUCK / np.sqrt(3 * 300)
    assert np.abs(means.mean(0)).max() < 4 * error
    assert np.corrcoef(means[:, 0], validation[:, 0])[0, 1] == pytest.approx(verdict.SAME_LUCK, abs=0.1)
    assert np.mean([fmean(verdict.best(final).runs.values) for final in finals]) < 0


def test_the_old_rule_is_welch():
    ours, theirs = (2.1, 2.2, 2.15), (2.3, 2.6, 2.2)
    expected = ttest_ind(ours, theirs, equal_var=False).confidence_interval(0.95).high

    assert verdict.welch(Runs((1, 2, 3), ours), Runs((1, 2, 3), theirs)) == pytest.approx(expected)


def test_a_row_tells_the_rates():
    row = verdict.simulated_row(verdict.Case(3, "40", top=3), finals=5)

    assert row["top"] == 3 and 0 <= row["better"] <= row["power at 0.02"] <= row["power at 0.1"] <= 1
    assert row["power at 0.1"] == 1 and row["reached"] in ("yes", "no")


def test_real_entrants_have_different_runs():
    weights = np.ones(12)
    names = tuple(map(str, range(12)))
    pool = [verdict.Run(value, Documents("bits", names, np.full(12, value), weights)) for value in range(1, 9)]
    entrants = verdict.drawn(np.random.default_rng(0), pool, seeds=4, entrants=2)

    assert sorted(value for each in entrants for value in each.runs.values) == list(range(1, 9))
    assert all(each.validation == fmean(each.runs.values) for each in entrants)
    assert verdict.real_row(pool, seeds=2, top=3, finals=3)["documents"] == 12
