"""How well size and lower rungs predict quality, and how often the intervals cover the truth."""

import json
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

import nas
from nas import report
from nas.report.ranking import EXPLAINS, of_results
from nas.statistics.rank_correlation import correlation, ranks
from nas.store import RungResult


def drawn(rng: random.Random, n: int, rho: float) -> tuple[list[float], list[float]]:
    """Pairs of a normal distribution with Pearson correlation `rho`."""
    xs = [rng.gauss(0, 1) for _ in range(n)]
    return xs, [rho * x + math.sqrt(1 - rho * rho) * rng.gauss(0, 1) for x in xs]


@pytest.mark.parametrize("n", [8, 27])
@pytest.mark.parametrize("rho", [0.0, 0.6, 0.9])
def test_the_interval_covers_the_truth_in_about_95_per_cent(n: int, rho: float) -> None:
    rng, draws = random.Random(n), 500
    truth = 6 / math.pi * math.asin(rho / 2)  # Spearman's correlation of the distribution
    found = [correlation(*drawn(rng, n, rho)) for _ in range(draws)]
    assert 0.92 <= sum(each.low <= truth <= each.high for each in found) / draws <= 0.99
    assert (
        sum(truth < each.low for each in found) / draws <= 0.05
    )  # "size explains the ranking" follows from the low end


def test_it_is_spearmans_correlation() -> None:
    assert ranks([3.0, 1.0, 3.0, 9.0]) == [2.5, 1.0, 2.5, 4.0]
    xs, ys = drawn(random.Random(0), 20, 0.7)
    squares = sum((a - b) ** 2 for a, b in zip(ranks(xs), ranks(ys)))
    assert correlation(xs, ys).value == pytest.approx(1 - 6 * squares / (20 * (20**2 - 1)))  # without equal values


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=5, max_size=30))
def test_the_value_is_inside_its_interval_and_follows_the_order_alone(pairs: list[tuple[int, int]]) -> None:
    xs, ys = zip(*pairs)
    found = correlation(xs, ys)
    if found is None:
        assert len(set(xs)) == 1 or len(set(ys)) == 1
        return
    assert -1 <= found.low <= found.value <= found.high <= 1
    assert found.low < found.high
    assert correlation([math.exp(x) for x in xs], ys) == found
    opposite = correlation([-x for x in xs], ys)
    assert (opposite.value, opposite.low) == (pytest.approx(-found.value), pytest.approx(-found.high))


def test_full_agreement_has_an_interval_too() -> None:
    found = correlation(range(10), range(10))
    assert (found.value, found.high) == (1, 1)
    assert 0.9 < found.low < 1
    assert correlation(range(10), range(10, 0, -1)).low == -1


def test_too_few_or_equal_values_have_no_correlation() -> None:
    assert correlation([1, 2, 3, 4], [1, 2, 3, 4]) is None
    assert correlation([1, 1, 1, 1, 1], [1, 2, 3, 4, 5]) is None
    with pytest.raises(ValueError, match="as many values, but got 2 and 3"):
        correlation([1, 2], [1, 2, 3])


def result(number: int, steps: int, value: float, parameters: float | None, **more: float | None) -> RungResult:
    return RungResult(number, steps, value, parameters, **({"step_flops": None, "flops": None} | more))


def test_size_alone_explains_a_ranking_that_follows_it() -> None:
    results = [result(n, 40, 3 - 0.1 * n, 1000 * n, flops=n % 3) for n in range(20)]
    found = of_results(results, sign=-1)
    (size,) = found.sizes
    assert (size.steps, size.trials, size.parameters.value) == (40, 20, 1)
    assert size.parameters.low > EXPLAINS
    assert found.explained.startswith(
        "Parameters alone explain the ranking (larger is better): rank correlation 1.00 ("
    )
    assert of_results(results, sign=1).explained.startswith("Parameters alone explain the ranking (smaller is better)")
    assert "with FLOPs 0.0" in found.sentences()[0]


def test_a_ranking_that_does_not_follow_size_is_not_explained_by_it() -> None:
    rng = random.Random(0)
    results = [result(n, 40, rng.random(), 1000 * n, flops=n) for n in range(20)]
    found = of_results(results, sign=-1)
    assert found.explained == ""
    assert found.sentences() == [found.shown.sentence()]
    assert "20 trials at 40 steps, 95% intervals." in found.sentences()[0]


def test_each_rung_is_compared_with_the_next_over_the_trials_on_both() -> None:
    low = [result(n, 10, n, n) for n in range(12)]
    high = [result(n, 30, -n, n) for n in range(6)]
    top = [result(n, 90, n, n) for n in range(2)]
    found = of_results([*low, *high, *top], sign=-1)
    (rung,) = found.rungs  # two trials at the top say nothing
    assert (rung.steps, rung.next_steps) == (10, 30)
    assert (rung.correlation.value, rung.correlation.trials) == (-1, 6)
    assert found.shown.steps == 10  # the highest rung with ten trials
    assert found.sentences()[1].startswith("Rank correlation of quality at 10 and 30 steps: -1.00 (")


def test_flops_of_training_and_of_an_objective_are_not_mixed() -> None:
    some = [result(n, 10, n, n, step_flops=n, flops=-n) for n in range(9)]
    assert of_results(some, sign=1).sizes[0].flops.value == 1
    old = [*some, result(9, 10, 9, 9, flops=-9)]  # added by an older version
    assert of_results(old, sign=1).sizes[0].flops.value == -1


def test_a_study_is_read_rung_by_rung(describe, tmp_path) -> None:
    described = describe(
        objectives="[loss, parameters, flops]", scheduler="{halving: {rungs: [2, 4], factor: 2}}", budget="{trials: 8}"
    )
    with nas.open_study(tmp_path / "mine.db", "mine", described) as study:
        while asked := study.ask():
            study.tell(asked[0], {"loss": 1.0 + asked[0].trial})
        found = report.ranking(study.store, study.record)
        assert [each.steps for each in found.sizes] == [2, 4]
        assert found.sizes[0].trials == 8
        assert found.sizes[0].parameters.trials == 8
        seen = json.loads(json.dumps(report.status(study.store, study.record).to_dict()))
        assert seen["ranking"]["sizes"][0]["parameters"]["trials"] == 8
        assert len(study.store.rung_results(study.record.id, "loss", 3)) == 3
