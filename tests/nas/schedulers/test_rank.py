"""What a trial is promoted by: the first objective, a weighted sum, or Pareto fronts; and limits."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nas.errors import UsageError
from nas.schedulers.contract import Level
from nas.schedulers.registry import make

MINIMISED = {"bits_per_byte": "minimize", "flops": "minimize"}
VALUES = st.tuples(st.integers(0, 9).map(float), st.integers(1, 9).map(float))


def halving(objectives=MINIMISED, **options):
    return make("halving", objectives, rungs=[10, 30], **options)


def promoted(scheduler, results):
    """The trials that continue, in order."""
    for number, values in enumerate(results):
        scheduler.tell(number, 0, values, 10)
    found = []
    while (promotion := scheduler.promotion()) is not None:
        found.append(promotion.number)
        scheduler.started(promotion.number, 1, 30)
    return found


def test_the_cheapest_trial_does_not_continue_because_it_is_cheap():
    results = [(3.35, 22e6), (2.6, 60e6), (2.7, 50e6), (2.9, 40e6), (3.0, 30e6), (2.65, 55e6)]
    assert promoted(halving(), results) == [1, 5]
    assert promoted(halving(rank="pareto"), results) == [0, 1]


@given(st.lists(VALUES, min_size=1, max_size=40))
def test_by_default_the_best_by_the_first_objective_continue(results):
    alone = make("halving", {"bits_per_byte": "minimize"}, rungs=[10, 30])
    assert promoted(halving(), results) == promoted(alone, [values[:1] for values in results])


@given(st.lists(VALUES, min_size=1, max_size=40))
def test_weights_rank_by_the_weighted_sum(results):
    sums = [(values[0] + 0.5 * math.log2(values[1]),) for values in results]
    alone = make("halving", {"sum": "minimize"}, rungs=[10, 30])
    weighted = halving(rank={"bits_per_byte": 1, "log2 flops": 0.5})
    assert promoted(weighted, results) == promoted(alone, sums)


def test_a_doubling_of_the_cost_counts_as_the_weight_says():
    cheap, better = (2.55, 10e6), (2.48, 20e6)
    assert promoted(halving(rank={"bits_per_byte": 1, "log2 flops": 0.1}), [better, cheap, (9.0, 1e9)]) == [1]
    assert promoted(halving(rank={"bits_per_byte": 1, "log2 flops": 0.05}), [better, cheap, (9.0, 1e9)]) == [0]


def test_a_maximised_objective_is_weighted_as_it_is_compared():
    objectives = {"accuracy": "maximize", "flops": "minimize"}
    results = [(-0.9, 30.0), (-0.8, 10.0), (-0.1, 10.0)]
    assert promoted(halving(objectives, rank={"accuracy": 1, "flops": 0.001}), results) == [0]
    assert promoted(halving(objectives, rank={"accuracy": 1, "flops": 0.01}), results) == [1]


@pytest.mark.parametrize("rank", ["quality", "pareto", {"bits_per_byte": 1, "flops": 1}])
def test_a_trial_beyond_a_limit_does_not_continue_and_counts_as_finished(rank):
    results = [(2.0, 21e6), (3.0, 20e6), (4.0, 1e9)]
    assert promoted(halving(rank=rank, cost_limits={"flops": "20M"}), results) == [1]


def test_the_limit_of_a_maximised_objective_is_its_lowest_value():
    objectives = {"loss": "minimize", "accuracy": "maximize"}
    assert promoted(halving(objectives, cost_limits={"accuracy": 0.5}), [(1.0, -0.4), (2.0, -0.5), (3.0, -0.9)]) == [1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rank": "qualty"}, r"option 'rank': must be quality, pareto, or weights .*Did you mean 'quality'\?"),
        ({"rank": {}}, "must be quality, pareto, or weights"),
        ({"rank": {"bits_per_byte": 0}}, "option 'rank.bits_per_byte': must be greater than 0, but got"),
        ({"rank": {"bits_per_byte": "much"}}, "Expected a number"),
        (
            {"rank": {"flop": 1}},
            r"rank names 'flop', but .*Did you mean 'flops'\? Its objectives: bits_per_byte, flops",
        ),
        ({"rank": {"log2 flop": 1}}, "rank names 'log2 flop'"),
        ({"cost_limits": {"parameters": 5}}, "cost_limits names 'parameters', but the search has no such objective"),
        ({"rank": {"bits_per_byte": float("inf")}}, "Expected a finite number, found inf, but got"),
        ({"cost_limits": {"flops": -3}}, "option 'cost_limits.flops': must be greater than or equal to 0, but got"),
        (
            {"cost_limits": {"flops": float("nan")}},
            "option 'cost_limits.flops': Expected a finite number, found nan, but",
        ),
        ({"cost_limits": 20}, "option 'cost_limits': must be names of objectives with numbers"),
    ],
)
def test_a_rank_that_cannot_be_is_rejected(options, message):
    with pytest.raises(UsageError, match=message):
        halving(**options)


def test_a_maximised_objective_has_no_logarithm():
    with pytest.raises(UsageError, match="a maximised objective has no logarithm"):
        halving({"accuracy": "maximize"}, rank={"log2 accuracy": 1})


def test_without_the_objectives_it_can_still_forecast():
    scheduler = halving(None, rank={"flops": 1}, cost_limits={"flops": 3})
    assert scheduler.forecast(9) == (Level(9, 0, 10), Level(3, 10, 30))
    with pytest.raises(ValueError, match="must know the objectives to rank by flops"):
        scheduler.tell(0, 0, (1.0, 2.0), 10)


def test_a_weighted_sum_that_overflows_does_not_continue():
    objectives = {"perplexity": "minimize", "score": "maximize"}
    results = [(1e308, -1e308)] * 30  # 2e308 - 2e308 is not a number
    scheduler = make("halving", objectives, rungs=[10, 30, 90], rank={"perplexity": 2, "score": 2})
    assert promoted(scheduler, results) == []
