"""Which trials asynchronous successive halving promotes."""

import dataclasses
import math
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nas import pareto
from nas.errors import UsageError
from nas.schedulers.contract import Level, Promotion
from nas.schedulers.registry import make, schedulers

RUNGS = [10, 30, 90]
values = st.one_of(st.none(), st.tuples(st.integers(0, 4).map(float), st.integers(0, 4).map(float)))
events = st.lists(st.tuples(st.booleans(), values), min_size=1, max_size=60)


def halving(objectives=None, **options):
    return make("halving", objectives, **{"rungs": RUNGS, "factor": 3, "rank": "pareto", **options})


def run(scheduler, events):
    """Play `events`: (ask for a promotion, the values of the next unit). Yields every promotion with the rung's results
    at that moment, and the trials promoted from it before."""
    results = [{} for _ in RUNGS]
    promoted = [set() for _ in RUNGS]
    fresh = 0
    for asks, value in events:
        promotion = scheduler.promotion() if asks else None
        number, rung = (promotion.number, promotion.rung) if promotion else (fresh, 0)
        if promotion:
            assert promotion.steps == RUNGS[rung]
            yield (number, rung), dict(results[rung - 1]), set(promoted[rung - 1]), results
            promoted[rung - 1].add(number)
        else:
            fresh += 1
        scheduler.started(number, rung, RUNGS[rung])
        scheduler.tell(number, rung, value, RUNGS[rung])
        results[rung][number] = value


@given(events)
def test_only_the_best_part_of_a_rung_is_promoted_and_each_trial_once(events):
    for (number, _), rung, gone, _ in run(halving(), events):
        assert rung[number] is not None, "a failure was promoted"
        assert number not in gone
        finished = [n for n in sorted(rung) if rung[n] is not None]
        best = [finished[i] for i in pareto.order([rung[n] for n in finished])][: len(rung) // 3]
        assert number in best


@given(events)
def test_no_trial_is_promoted_before_one_that_dominates_it(events):
    for (number, _), rung, gone, _ in run(halving(), events):
        better = {n for n, v in rung.items() if v is not None and pareto.dominates(v, rung[number])}
        assert better <= gone


@given(events)
def test_the_highest_rung_with_a_candidate_goes_first(events):
    for (_, chosen), _, _, results in run(halving(), events):
        alone = halving()
        for rung, told in enumerate(results):
            for number, value in told.items():
                alone.started(number, rung, RUNGS[rung])
                alone.tell(number, rung, value, RUNGS[rung])
        assert alone.promotion().rung == chosen  # rebuilt from what was recorded, it decides the same


@given(events)
def test_rebuilt_from_what_was_recorded_it_decides_the_same(events):
    scheduler, log = halving(), []
    for number, (_, value) in enumerate(events):
        log.append((number, 0, value, 10))
        scheduler.tell(*log[-1])
    rebuilt = halving()
    for entry in reversed(log):
        rebuilt.tell(*entry)
    decisions = [[], []]
    for one, found in zip((scheduler, rebuilt), decisions):
        while promotion := one.promotion():
            found.append(promotion)
            one.started(promotion.number, promotion.rung, promotion.steps)
    assert decisions[0] == decisions[1]


def test_waits_until_a_rung_has_enough_trials():
    scheduler = halving()
    scheduler.tell(0, 0, (1.0,), 10)
    scheduler.tell(1, 0, (2.0,), 10)
    assert scheduler.promotion() is None
    scheduler.tell(2, 0, None, 10)  # a failure is a finished trial
    assert scheduler.promotion() == Promotion(0, 1, 30)


def test_a_tie_goes_to_the_older_trial():
    scheduler = halving()
    for number in (5, 2, 9):
        scheduler.tell(number, 0, (1.0,), 10)
    assert scheduler.promotion() == Promotion(2, 1, 30)


def test_a_started_promotion_is_not_made_again():
    scheduler = halving()
    for number in range(6):
        scheduler.tell(number, 0, (float(number),), 10)
    assert scheduler.promotion() == Promotion(0, 1, 30)
    assert scheduler.promotion() == Promotion(0, 1, 30)
    scheduler.started(0, 1, 30)
    assert scheduler.promotion() == Promotion(1, 1, 30)
    scheduler.started(1, 1, 30)
    assert scheduler.promotion() is None


def test_a_value_that_is_not_finite_counts_as_a_failure():
    scheduler = halving()
    for number, value in enumerate([math.nan, -math.inf, 3.0]):
        scheduler.tell(number, 0, (value,), 10)
    assert scheduler.promotion() == Promotion(2, 1, 30)


def test_the_last_rung_leads_nowhere():
    scheduler = halving(rungs=[10])
    for number in range(9):
        scheduler.tell(number, 0, (1.0,), 10)
    assert scheduler.promotion() is None


def test_full_training_has_one_rung_and_no_promotion():
    scheduler = make("full", steps=300)
    scheduler.started(0, 0, 300)
    scheduler.tell(0, 0, (1.0,), 300)
    assert (scheduler.start(7), scheduler.horizon(7), scheduler.is_last(0, 0, 300)) == (300, 300, True)
    assert scheduler.promotion() is None


def test_an_option_may_be_written_without_its_name():
    assert make("full", **{"": 40}).start(0) == 40
    assert make("halving", **{"": [1, 2]}).levels == (1, 2)


@pytest.mark.parametrize(
    "name, options, message",
    [
        (
            "halvin",
            {},
            r"No scheduler is called 'halvin'\. Did you mean 'halving'\? Known: full, halving",
        ),
        ("full", {}, "scheduler 'full' needs the option 'steps'"),
        ("full", {"steps": 0}, r"option 'steps': must be greater than or equal to 1, but got 0"),
        ("full", {"step": 3}, r"has no option 'step'\. Did you mean 'steps'\? Its options: steps"),
        ("halving", {"rungs": [3, 3]}, "rungs must ascend, but 3 is followed by 3"),
        ("halving", {"rungs": [3, "many"]}, r"option 'rungs\.1': must be a valid integer"),
        ("halving", {"rungs": [3], "factor": 1}, "option 'factor': must be greater than 1"),
    ],
)
def test_says_what_is_wrong_with_a_description(name, options, message):
    with pytest.raises(UsageError, match=message):
        make(name, **options)


def test_finds_every_scheduler_by_itself():
    assert {"full", "halving"} <= set(schedulers())


@given(events)
def test_a_result_that_is_told_again_replaces_the_earlier_one(events):
    replaced, fresh = halving(), halving()
    for number, (_, value) in enumerate(events):
        replaced.tell(number, 0, (float(number % 7), 1.0), 10)
        fresh.tell(number, 0, value, 10)
    for number, (_, value) in enumerate(events):
        replaced.tell(number, 0, value, 10)
    assert replaced.promotion() == fresh.promotion()


def test_the_forecast_divides_by_the_factor():
    assert halving(factor=4).forecast(30) == (Level(30, 0, 10), Level(9, 10, 30), Level(2, 30, 90))


@pytest.mark.parametrize("trials", [2, 8])
def test_the_forecast_of_few_trials_says_that_none_reaches_the_last_level(trials):
    assert halving().forecast(trials)[-1] == Level(0, 30, 90)


@pytest.mark.parametrize("factor", [1.5, 3, 5])
def test_the_forecast_is_about_what_trials_in_a_random_order_cost(factor):
    def trained(seed):
        scheduler, steps, trials = halving(factor=factor, rank="quality"), 0, 0
        while (promotion := scheduler.promotion()) or trials < 100:
            new = Promotion(trials, 0, RUNGS[0])
            number, rung, to = dataclasses.astuple(promotion or new)
            trials += promotion is None
            scheduler.started(number, rung, to)
            scheduler.tell(number, rung, (random.Random(f"{seed}/{number}").random(),), to)
            steps += to - (RUNGS[rung - 1] if rung else 0)
        return steps

    expected = sum(each.units * (each.steps - each.start) for each in halving(factor=factor).forecast(100))
    assert statistics.fmean(map(trained, range(5))) == pytest.approx(expected, rel=0.08)


def test_a_unit_belongs_to_the_level_that_it_trains_to():
    scheduler = halving()
    assert [scheduler.is_last(0, 5, steps) for steps in (10, 30, 90)] == [False, False, True]
    for number in range(3):
        scheduler.tell(number, 1, (float(number),), 10)  # rung 0 was a probe
    assert scheduler.promotion() == Promotion(0, 2, 30)


@pytest.mark.parametrize("name", ["halving", "hyperband"])
def test_no_more_trials_continue_if_all_have_the_same_value(name):
    options = {"brackets": 1} if name == "hyperband" else {}
    scheduler = make(name, {"error": "minimize"}, rungs=RUNGS, factor=3, **options)
    units = [0, 0, 0]
    for _ in range(90):
        promotion = scheduler.promotion()
        number, rung = (promotion.number, promotion.rung) if promotion else (units[0], 0)
        scheduler.started(number, rung, RUNGS[rung])
        scheduler.tell(number, rung, (0.0,), RUNGS[rung])
        units[rung] += 1
    assert units[1] <= units[0] // 3 and units[2] <= units[1] // 3


def test_of_trials_that_are_equal_in_everything_the_older_ones_continue():
    objectives = {"error": "minimize", "parameters": "minimize"}
    scheduler = make("halving", objectives, rungs=RUNGS, rank="pareto")
    found = []
    for number in range(9):
        scheduler.started(number, 0, 10)
        scheduler.tell(number, 0, (0.0, 1.0), 10)
        while (promotion := scheduler.promotion()) is not None:
            found.append(promotion.number)
            scheduler.started(*vars(promotion).values())
    assert found == [0, 1, 2]
