"""Arms keep their own places, limits and architectures; a probe runs before training; progress is live."""

import math

from nas.store import Refusal, TrialRefused, TrialState, UnitKind, UnitState
from nas.work import Progress

OWNER = "host:1:a"


def test_each_arm_has_its_own_architectures_and_its_own_limit(store, study, add):
    same = {"architecture": ("0000", "width: 0")}
    add(store, study, 0, limit=1, **same)
    assert add(store, study, 1, limit=1) == TrialRefused(Refusal.LIMIT_REACHED)
    add(store, study, 1, arm="control", limit=1, known_trials=1, **same)
    assert add(store, study, 2, arm="control", **same) == TrialRefused(Refusal.ARCHITECTURE_KNOWN, 1)
    assert [(each.arm, each.known_trials) for each in store.trials(study.id)] == [("main", None), ("control", 1)]
    assert store.lease(study.id, OWNER, 2)[1].arm == "control"


def test_a_trial_has_the_steps_of_its_highest_finished_rung(store, study, add):
    added = add(store, study, 0, owner=OWNER)
    assert store.trial(study.id, 0).steps is None
    store.finish(added.unit.id, OWNER, 1, {"bits": 2.0}, last=False)
    unit = store.promote(added.trial_id, 1, 300, owner=OWNER)
    assert store.trial(study.id, 0).steps == 100
    store.finish(unit.id, OWNER, 1, {"bits": 1.0}, last=True)
    assert store.trial(study.id, 0).steps == store.best(study.id, "bits")[0].steps == 300


def test_training_follows_a_probe_in_the_same_transaction(store, study, add):
    probe = add(store, study, 0, owner=OWNER, kind=UnitKind.PROBE, steps=0, cheap_values={"flops": 5.0}).unit
    assert (probe.kind, probe.rung, probe.steps) == (UnitKind.PROBE, 0, 0)
    first = store.finish(probe.id, OWNER, 1, {"norm": 0.5}, last=False, then=100)
    assert store.finish(probe.id, OWNER, 1, {"norm": 0.5}, last=False, then=100) == first == 1
    trial = store.trial(study.id, 0)
    assert (trial.state, trial.rung, trial.values) == (TrialState.RUNNING, None, {})
    assert trial.cheap_values == {"flops": 5.0, "norm": 0.5}
    assert store.stop_trials(study.id) == 0  # it is not between two rungs: its training is queued

    (unit,) = store.lease(study.id, OWNER)
    assert (unit.kind, unit.rung, unit.steps, unit.cheap_values) == (UnitKind.TRAIN, 0, 100, trial.cheap_values)
    assert unit.start_uri is None
    assert store.finish(unit.id, OWNER, 1, {"bits": 1.0}, {"tokens": 3.0}, last=True) == 2
    assert store.trial(study.id, 0).values == {"flops": 5.0, "norm": 0.5, "bits": 1.0}
    assert store.metrics(study.id, 0, 0) == {"tokens": 3.0}
    assert [(each.kind, each.values) for each in store.units(study.id, 0)] == [
        (UnitKind.PROBE, {"norm": 0.5}),
        (UnitKind.TRAIN, {"flops": 5.0, "norm": 0.5, "bits": 1.0}),
    ]


def test_a_probe_that_fails_ends_the_trial(store, study, add):
    probe = add(store, study, 0, owner=OWNER, kind=UnitKind.PROBE, steps=0).unit
    store.fail(probe.id, OWNER, 1, "probe error", "no gradient")
    assert store.trial(study.id, 0).error_kind == "probe error"
    assert [each.kind for each in store.results_since(study.id)] == [UnitKind.PROBE]
    assert not store.open_units(study.id)


def progress_of(store, study, number):
    unit = store.units(study.id, number)[0]
    return unit.progress_step, unit.progress_loss, unit.progress_rate


def test_progress_is_written_with_the_lease_and_cleared_when_the_attempt_ends(store, study, add):
    first, second = (add(store, study, number, owner=OWNER).unit for number in range(2))
    seen = {first.id: Progress(7, 100, 2.5, 1e3), second.id: Progress(1, 100, math.nan, 10.0)}
    assert store.renew([first.id, second.id], OWNER, 60, seen) == [first.id, second.id]
    assert progress_of(store, study, 0) == (7, 2.5, 1e3)
    assert progress_of(store, study, 1) == (1, None, 10.0)
    assert store.units(study.id, 0)[0].progress_at is not None
    assert store.renew([first.id], OWNER) == [first.id]  # without news it stays
    assert progress_of(store, study, 0) == (7, 2.5, 1e3)
    assert store.renew([first.id], "another", 60, {first.id: Progress(8, 100, 1.0, 1e3)}) == []
    assert progress_of(store, study, 0) == (7, 2.5, 1e3)
    store.finish(first.id, OWNER, 1, {"bits": 1.0}, last=True)
    store.release([second.id], OWNER)
    assert progress_of(store, study, 0) == progress_of(store, study, 1) == (None, None, None)
    assert store.units(study.id, 1)[0].state is UnitState.QUEUED
