"""Which holes matter, and which of their values are shown."""

import numpy as np
import pytest

from dashboards.analysis.holes import best_values, importances, tried


def test_what_decides_the_score_matters_and_nothing_else_does():
    generator = np.random.default_rng(0)
    columns = {f"hole {index}": generator.integers(0, 8, 200).tolist() for index in range(10)}
    columns["text"] = [f"value {number % 3}" for number in columns["hole 1"]]
    scores = np.array(columns["hole 0"]) + 0.5 * (np.array(columns["hole 1"]) % 3) + generator.normal(size=200) * 0.1
    found = importances(columns, scores)

    assert found[0].hole == "hole 0" and found[0].low > 0.5
    assert found[1].hole in ("text", "hole 1") and found[1].low > 0
    assert all(abs(each.value) < 0.05 for each in found if each.hole not in ("hole 0", "hole 1", "text"))
    assert found == importances(columns, scores), "the same data, the same answer"


def test_huge_scores_are_compared_like_others():
    generator = np.random.default_rng(0)
    columns = {"hole": generator.integers(0, 8, 40).tolist()}
    scores = np.array(columns["hole"], dtype=float)
    (found,), (huge,) = importances(columns, scores), importances(columns, scores * 1e300)
    assert huge.value == pytest.approx(found.value) and found.low > 0.5


@pytest.mark.parametrize("scores", [[1.0] * 30, [1.0] * 5 + [np.nan] * 25])
def test_without_results_that_differ_nothing_is_known(scores):
    columns = {"hole": list(range(30))}
    assert importances(columns, np.array(scores)) == []


def test_a_list_of_values_keeps_those_with_the_best_results_in_their_order():
    values = list(range(20)) * 2
    scores = np.array([float(20 - value) for value in values])
    found = tried({"hole": values}, scores, sign=1)

    assert [each.value for each in found] == list(range(20)) and {each.trials for each in found} == {2}
    assert [each.value for each in best_values(found, 1)] == list(range(8, 20))
    assert [each.value for each in best_values(found, -1)] == list(range(12))
    assert best_values(found, 1, most=30) == found
