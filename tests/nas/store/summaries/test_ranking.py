"""The best trials and the Pareto front of a study."""

import random

import pytest

from nas.errors import UsageError
from nas.pareto import dominates
from nas.report import trials

OWNER = "host:1:a"


@pytest.fixture
def filled(store, study, add):
    """Six complete trials, one stopped and one final; bits down, accuracy up."""
    values = [(3.0, 0.9), (1.0, 0.2), (2.0, 0.5), (2.0, 0.4), (1.0, 0.2), (5.0, 0.1), (0.1, 0.99)]
    for number, (bits, accuracy) in enumerate(values):
        unit = add(store, study, number, owner=OWNER).unit
        store.finish(unit.id, OWNER, 1, {"bits": bits, "accuracy": accuracy}, last=number < 6)
    store.stop_trials(study.id)
    unit = add(store, study, 7, owner=OWNER, purpose="final").unit
    store.finish(unit.id, OWNER, 1, {"bits": 1.5, "accuracy": 0.95}, last=True)
    return study


def test_the_best_come_first_and_the_older_of_two_equal_ones(store, filled):
    assert [trial.number for trial in store.best(filled.id, "bits", 3)] == [1, 4, 7]
    assert [trial.number for trial in store.best(filled.id, "accuracy", 2)] == [7, 0]
    assert [trial.number for trial in store.best(filled.id, limit=1, states=["complete", "stopped"])] == [6]
    assert [trial.number for trial in store.best(filled.id, limit=None, purposes=["final"])] == [7]
    assert store.best(filled.id)[0].values == {"bits": 1.0, "accuracy": 0.2}


def test_only_trials_that_are_as_good_as_a_value_are_asked_for(store, filled):
    assert [trial.number for trial in store.best(filled.id, "bits", reached=1.5)] == [1, 4, 7]
    assert [trial.number for trial in store.best(filled.id, "accuracy", reached=0.9)] == [7, 0]
    assert store.best(filled.id, "bits", reached=0.05) == []


def test_the_best_and_the_front_are_read_together(store, filled, study):
    """Of equal best trials the older counts, as in `best` alone, on the front or not."""
    of_study = store.study(study.name)
    best, front = trials.best_and_front(store, of_study)
    assert best == trials.best(store, of_study, None, 1)[0]
    assert front == trials.front(store, of_study)


@pytest.mark.parametrize("values", [[], [(1.0, 0.2), (1.0, 0.9)], [(2.0, 0.9), (1.0, 0.2), (1.0, 0.5)]])
def test_the_best_may_be_an_older_one_that_is_not_on_the_front(store, study, add, values):
    for number, (bits, accuracy) in enumerate(values):
        unit = add(store, study, number, owner=OWNER).unit
        store.finish(unit.id, OWNER, 1, {"bits": bits, "accuracy": accuracy}, last=True)
    of_study = store.study(study.name)
    best, front = trials.best_and_front(store, of_study)
    assert best == next(iter(trials.best(store, of_study, None, 1)), None)
    assert [each.number for each in front] == [each.number for each in trials.front(store, of_study)]


def test_the_front_respects_directions_and_purposes(store, filled):
    assert [trial.number for trial in store.pareto(filled.id)] == [1, 4, 7]
    assert [trial.number for trial in store.pareto(filled.id, purposes=["search"])] == [1, 4, 2, 0]
    assert [trial.number for trial in store.pareto(filled.id, ["accuracy"])] == [7]


def test_an_unknown_objective_is_answered_with_the_nearest(store, filled):
    with pytest.raises(UsageError, match=r"No objective named 'bit'. Did you mean 'bits'"):
        store.best(filled.id, "bit")
    with pytest.raises(UsageError, match="No objective named 'flops'"):
        store.pareto(filled.id, ["bits", "flops"])


def test_a_study_without_results_has_no_best(store, study):
    assert store.best(study.id) == store.pareto(study.id) == []


def test_the_trials_that_were_trained_longest_come_first(store, study, add):
    """By training steps: rung 0 of one trial may be longer than rung 1 of another."""
    for number, (steps, then, bits) in enumerate([(10, 20, 3.0), (40, None, 4.0), (10, None, 1.0), (20, 40, 5.0)]):
        added = add(store, study, number, owner=OWNER, steps=steps)
        store.finish(added.unit.id, OWNER, 1, {"bits": bits, "accuracy": 0.5}, last=then is None)
        if then:
            unit = store.promote(added.trial_id, 1, then, owner=OWNER)
            store.finish(unit.id, OWNER, 1, {"bits": bits, "accuracy": 0.5}, last=True)

    ranked = store.best(study.id, longest=True)
    assert [(trial.number, trial.rung, trial.steps) for trial in ranked] == [
        (1, 0, 40),
        (3, 1, 40),
        (0, 1, 20),
        (2, 0, 10),
    ]
    assert [trial.number for trial in store.pareto(study.id, longest=True)] == [1]
    assert [trial.number for trial in store.best(study.id)] == [2, 0, 1, 3]


@pytest.mark.parametrize("objectives", [["bits"], ["bits", "accuracy"], ["bits", "accuracy", "flops"]])
def test_the_front_is_that_of_the_definition(objectives, store, add):
    directions = {"bits": "minimize", "accuracy": "maximize", "flops": "minimize"}
    study = store.create_study("wide", {}, "space", 0, [{"name": n, "direction": d} for n, d in directions.items()])
    generator, points = random.Random(0), []
    for number in range(40):  # few values, so that ties and equal points are common
        values = {name: float(generator.randrange(6)) for name in directions}
        points.append([values[name] * (-1 if directions[name] == "maximize" else 1) for name in objectives])
        store.finish(add(store, study, number, owner=OWNER).unit.id, OWNER, 1, values, last=True)

    expected = [n for n, point in enumerate(points) if not any(dominates(other, point) for other in points)]
    assert sorted(trial.number for trial in store.pareto(study.id, objectives)) == expected
