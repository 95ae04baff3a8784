"""Budgets of trials, steps, tokens, FLOPs and device-seconds: the first limit that is spent ends the search."""

import operator
from collections import Counter
from dataclasses import replace

import pytest

from nas import report
from nas.config.parts import parts
from nas.config.schema import SearchConfig
from nas.engine import launch, planning, session
from nas.engine.forecast import Rates, affordable, forecast
from nas.engine.replay import replay
from nas.engine.resolve import resolve
from nas.store import TrialState
from nas.work import Failure, FailureKind, Outcome
from searchspace.model.architecture import Architecture

HALVING = "{halving: {rungs: [2, 4, 8], factor: 2}}"
STEP = 16 * 128  # tokens of a training step of the task


def spent(result):
    """What the search of a result has spent, by kind, as the status shows it and as its arms count it."""
    seen = report.status(result.store, result.study).spending.spent
    proposer = session.proposer(parts(result.config), result.store, result.study)
    proposer.absorb()
    arms = proposer.arms.values()
    assert seen["steps"] == sum(arm.allowance.steps for arm in arms)
    assert seen["tokens"] == sum(arm.allowance.tokens for arm in arms)
    assert seen["device_seconds"] == sum(arm.allowance.device_seconds for arm in arms)
    if result.config.budget.flops:
        assert seen["flops"] == pytest.approx(sum(arm.allowance.flops for arm in arms))
    return seen


@pytest.mark.parametrize("scheduler", ["{full: {steps: 10}}", HALVING, "{hurdles: {rungs: [2, 4, 8], wait: 3}}"])
def test_steps_end_a_search_as_soon_as_they_are_spent(scheduler, describe, search):
    with search(describe(scheduler=scheduler, budget="{steps: 100}")) as result:
        assert 100 <= spent(result)["steps"] < 110
        assert result.store.study("tried").ending["limit"] == "steps"
        assert " of 100 steps" in report.status(result.store, result.study).to_text()


def test_a_forecast_knows_how_many_trials_steps_pay_for(describe):
    assert affordable(describe(budget="{steps: 400, trials: 50}"), Rates()) == (40, "steps")


@pytest.mark.parametrize("scheduler", ["{full: {steps: 10}}", HALVING])
def test_tokens_end_a_search_as_soon_as_they_are_spent(scheduler, describe, search):
    result = search(describe(scheduler=scheduler, budget=f"{{tokens: {50 * STEP}}}"))
    with result.store as store:
        steps = [unit.steps for unit in store.results_since(result.study.id)]
        assert 50 * STEP <= spent(result)["tokens"] < (50 + 10) * STEP
        assert replay(store, result.study).same
    assert len(steps) >= 5


def test_flops_are_those_of_the_training_steps_of_each_model(describe, search):
    result = search(describe(budget="{flops: 2e11}"))
    with result.store as store:
        trials = store.trials(result.study.id)
        costs = [parts(result.config).costs(Architecture.parse(trial.architecture)) for trial in trials]
        assert [(trial.parameters, trial.step_flops) for trial in trials] == costs
        total = sum(10 * flops for _, flops in costs)
        assert spent(result)["flops"] == pytest.approx(total)
        assert total - 10 * costs[-1][1] < 2e11 <= total


def test_device_seconds_and_trials_end_it_whichever_is_first(describe, search):
    by_time = search(describe(budget="{device_seconds: 5, trials: 40}"))
    assert spent(by_time) | {"flops": 0} == {
            "trials": 5, "steps": 50, "device_seconds": 5.0, "tokens": 50 * STEP, "flops": 0,
        }  # fmt: skip
    by_time.store.close()
    by_trials = search(describe(budget="{device_seconds: 500, trials: 7}"))
    assert spent(by_trials)["trials"] == 7
    by_trials.store.close()


def test_a_search_in_which_every_trial_fails_ends(describe, search):
    def fails(work, progress=None):
        failure = Failure(FailureKind.TASK_ERROR, "no")
        return Outcome(trial=work.trial, rung=work.rung, seconds=0.0, failure=failure)

    for budget, trials in (("{device_seconds: 4}", 4), (f"{{tokens: {60 * STEP}}}", 6)):
        with pytest.raises(Exception, match="every trial failed"):
            search(describe(budget=budget).model_copy(update={"study": f"of-{trials}"}), fails)
        config = describe(budget=budget).model_copy(update={"study": f"of-{trials}"})
        with launch.open_for(config) as store:
            study = store.study(config.study)
            assert Counter(each.state for each in store.trials(study.id)) == {TrialState.FAILED: trials}
            assert report.status(store, study).spending.spent["device_seconds"] == trials


def test_a_restart_counts_what_was_spent(describe, search):
    first = search(describe(budget=f"{{tokens: {30 * STEP}}}"))
    first.store.close()
    again = search(describe(budget=f"{{tokens: {50 * STEP}}}"))
    with again.store:
        assert spent(again)["tokens"] == 50 * STEP


def test_every_arm_spends_its_share(describe, search):
    config = describe(budget="{flops: 4e11}")
    config = SearchConfig(**{**config.model_dump(), "arms": {"control": {"strategy": "random", "share": 0.5}}})
    result = search(config)
    with result.store as store:
        by_arm = Counter()
        for trial in store.trials(result.study.id):
            by_arm[trial.arm] += 10 * trial.step_flops
        largest = max(10 * trial.step_flops for trial in store.trials(result.study.id))
    assert all(2e11 <= flops < 2e11 + largest for flops in by_arm.values()) and len(by_arm) == 2


def test_several_workers_stop_after_what_was_running(describe, table, disorderly):
    result = launch.search(describe(budget=f"{{tokens: {50 * STEP}}}"), quiet=True, runner=disorderly(table))
    with result.store:
        assert 50 * STEP <= spent(result)["tokens"] <= (50 + 10 * 4) * STEP


def test_a_plan_says_how_many_trials_the_budget_buys(describe):
    quick = "{language_model: {evaluation: 1024}}"  # the plan evaluates what it trained
    config = describe(task=quick, scheduler=HALVING, budget=f"{{tokens: {100 * STEP}, trials: 900}}")
    made = planning.plan(config)
    ahead = forecast(config, made.forecast.units[0])
    more = forecast(config, made.forecast.units[0] + 1)
    fewer, too_many = (sum(map(operator.mul, each.units, each.steps)) for each in (ahead, more))
    assert fewer <= 100 < too_many and not ahead.finals
    assert (made.spent_first, made.budget) == ("tokens", {"tokens": 100 * STEP, "trials": 900})
    text = made.as_text()
    assert "budget      900 trials, 205k tokens; tokens are spent first" in text
    assert f"trials      about {made.forecast.units[0]}, of 2 steps" in text


def test_the_limit_that_buys_fewest_trials_counts(describe):
    config = describe(budget=f"{{tokens: {1000 * STEP}, flops: 9e8, device_seconds: 65}}")
    rates = Rates(tokens=STEP, flops=2e6, device_seconds=0.1, unit_seconds=0.1)
    assert affordable(config, rates) == (45, "flops")
    assert affordable(config, replace(rates, flops=1e6)) == (50, "device_seconds")
    assert affordable(config, Rates(device_seconds=10)) == (1, "device_seconds")
    assert affordable(describe(budget="{device_seconds: 5}"), Rates()) is None


def test_the_status_shows_spent_of_planned(describe, search):
    result = search(describe(budget=f"{{trials: 9, tokens: {50 * STEP}, device_seconds: 7200}}"))
    with result.store as store:
        seen = report.status(store, result.study)
    assert "spent     5 of 9 trials, 102k of 102k tokens, 5 s of 2.0 h of device time" in seen.to_text()
    assert seen.to_dict()["spending"]["tokens"] == {"spent": 50 * STEP, "planned": 50 * STEP}
    assert seen.to_dict()["budget"] == 9


def test_the_time_left_follows_from_the_share_that_is_spent(describe):
    config = describe(budget=f"{{tokens: {100 * STEP}}}")
    with launch.open_for(config) as store:
        study = launch.enter(store, resolve(config, store))
        for number in range(2):
            added = store.add_trial(
                study.id, number, (f"hash{number}", "text"), seed=0, purpose="search", operator="random", choices={},
                known_results=0, steps=10, owner="me",
            )  # fmt: skip
            store.finish(added.unit.id, "me", 1, {"loss": 2.0}, last=True, seconds=3.0)
        found = report.eta(store, study)
    assert (found.seconds, found.units) == (pytest.approx(24), 8)
