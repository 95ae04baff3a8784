"""Values that a machine finds later: what strategies and schedulers see before and after, and that replays agree."""

import contextlib
import math
from dataclasses import replace

import pytest

from nas.cli.app import run
from nas.config.parts import parts
from nas.engine import rescoring, session
from nas.engine.arm import counts
from nas.engine.replay import replay
from nas.engine.scores import Later, Scores
from nas.errors import UsageError
from nas.objectives import make
from nas.report import trials
from nas.store import Unit, UnitKind, UnitState, open_store
from searchspace.cost import Shape

ON = "{latency: {length: 4, threads: 1, on: {machine: laptop}, name: laptop_ms}}"
SPEED = {"throughput": {"on": {"machine": "laptop"}, "name": "speed"}}


def later(number, value=None, rung=2):
    """A probe that a machine has ended."""
    state = UnitState.FAILED if value is None else UnitState.DONE
    values = None if value is None else {"speed": value}
    return Unit(id=number, kind=UnitKind.PROBE, rung=rung, steps=0, state=state, values=values, number=number)


def test_a_value_that_is_missing_counts_as_the_median_of_the_known_ones():
    objectives = [make("loss", Shape(length=4)), make(SPEED, Shape(length=4))]
    found = Later(objectives)
    values = Scores(objectives).minimised({"loss": 1.5})
    assert values[0] == 1.5 and math.isnan(values[1])
    assert found.filled(0, values) == (1.5, 0.0)
    for number, speed in ((1, 10.0), (2, 30.0), (3, 50.0)):
        found.tell(later(number, speed))
    assert found.filled(0, values) == (1.5, -30.0)
    assert found.filled(3, values) == (1.5, -50.0)
    found.tell(later(4))  # it does not run there
    assert found.filled(4, values) is None and found.filled(0, None) is None


def test_a_probe_of_a_machine_is_a_result_and_one_before_training_is_not():
    assert later(0, 1.0).later and counts(later(0, 1.0)) and counts(later(0))
    assert not later(0, 1.0, rung=0).later and not counts(later(0, 1.0, rung=0))


@pytest.mark.parametrize(
    ("strategy", "scheduler"),
    [
        ("{nsga2: {population: 3}}", "{halving: {rungs: [10, 20], factor: 2}}"),
        ("{model: {start: 3}}", "{full: {steps: 10}}"),
    ],
)
def test_the_search_learns_values_as_they_come_and_its_log_can_be_replayed(
    strategy, scheduler, describe, search, table
):
    """Every second trial gets its value while the next one runs; one of them does not run there."""
    config = describe(
        objectives=f"[loss, {ON}]", strategy=strategy, scheduler=scheduler, budget="{trials: 9}", baselines="[]"
    )
    described = {"name": "laptop_ms", "direction": "minimize"}

    def unit(work, progress=None):
        with open_store(config.storage) as store:
            trial = store.trial(store.study("tried").id, max(0, work.trial - 1))
            if work.trial == 4:
                store.add_no_value(trial.id, 2, ("no value", "it does not run"))
            elif work.trial % 2:
                store.add_value(trial.id, described, float(len(trial.architecture)), rung=2)
        return table(work)

    with search(config, unit).store as store:
        study = store.study("tried")
        assert replay(store, study).same
        known = [each.number for each in trials.results(store, study) if "laptop_ms" in each.values]
        assert known == [0, 2, 4, 6]
        assert {each.number for each in trials.front(store, study)} <= set(known)
        told = [unit.number for unit in store.results_since(study.id) if unit.later]
        assert sorted(told) == [0, 2, 3, 4, 6]


def test_a_strategy_is_told_again_with_the_value_that_came(describe):
    config = describe(objectives=f"[loss, {ON}]", budget="{trials: 2}")
    built = parts(config)
    (arm,) = session.arms(built, built.space, Scores(built.objectives))
    seen = []

    class Told(type(arm.strategy)):
        def tell(self, result):
            seen.append((result.number, result.values, result.failure))

    made = arm._parts
    arm._parts = lambda: (Told(built.space, seed=0, objectives=2), made()[1])
    arm._equip()
    for number in (0, 1):
        (proposal,) = arm.propose(number, 1)
        arm.begin(number, proposal.point.architecture.hash, proposal.point)
        arm.tell(Unit(id=number, rung=0, steps=10, state=UnitState.DONE, values={"loss": 1.0 + number}, number=number))
    assert seen == [(0, (1.0, 0.0), None), (1, (2.0, 0.0), None)]
    seen.clear()
    for number, value in ((0, 7.0), (1, None)):
        done = replace(later(number, value), values=None if value is None else {"laptop_ms": value})
        arm.tell(done)
    assert arm.told == 4 and arm.allowance.device_seconds == 0.0
    assert seen == []  # once it is asked for something
    arm.propose(2, 1)
    assert seen == [(0, (1.0, 7.0), None), (1, None, "no value")]


def test_of_two_processes_that_disagree_whether_a_trial_runs_the_first_counts(describe, search, monkeypatch):
    """Both serve one machine; one of them was out of memory."""
    with search(describe(objectives=f"[loss, {ON}]", budget="{trials: 2}")).store as store:
        study = store.study("tried")
        first, second = (store.trial(study.id, number).id for number in (0, 1))
        described, none = {"name": "laptop_ms", "direction": "minimize"}, ("no value", "it does not run")
        assert store.add_no_value(first, 2, none) and not store.add_value(first, described, 3.0, rung=2)
        assert store.add_value(second, described, 3.0, rung=2) and not store.add_no_value(second, 2, none)
        assert ["laptop_ms" in each.values for each in trials.results(store, study)] == [False, True]
        assert replay(store, study).same and store.faults() == []

    objective = make({"latency": {"length": 4, "name": "laptop_ms"}}, Shape(length=4))
    with search(describe(objectives=f"[loss, {ON}]", budget="{trials: 3}")).store as store:
        third = store.trial(store.study("tried").id, 2).id

        def slower(architecture, metrics=None):
            store.add_no_value(third, 2, none)
            return 3.0

        monkeypatch.setattr(objective, "evaluate", slower)
        monkeypatch.setattr(objective, "evidence", lambda architecture: None)
        (found,) = rescoring.find(store, store.study("tried"), [rescoring.Wanted(objective, 2)])
        assert (found.trial, found.value, found.old) == (2, None, True)


@pytest.mark.parametrize("command", ["best", "status"])
def test_commands_say_which_values_wait_for_a_machine(describe, search, capsys, command):
    config = describe(objectives=f"[loss, {ON}]", budget="{trials: 2}")
    search(config).close()
    with contextlib.suppress(SystemExit):
        run([command, "tried", "--storage", config.storage])
    assert "laptop_ms: 2 trials wait for the machine laptop: nas latency tried" in "".join(capsys.readouterr())


def test_the_first_objective_cannot_come_later(describe):
    with pytest.raises(UsageError, match="the first objective must be known when a trial ends, but laptop_ms is"):
        describe(objectives=f"[{ON}, loss]")


def test_nothing_is_measured_by_the_search_itself(describe):
    objective = parts(describe(objectives=f"[loss, {ON}]")).objectives[1]
    assert (objective.stage, objective.machine, objective.name) == ("later", "laptop", "laptop_ms")
    with pytest.raises(UsageError, match="there is no value from there"):
        objective.evaluate(None)
