"""The life of a study, its trials and their units, on both databases."""

import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nas.errors import UsageError
from nas.numbers import FIRST_FINAL
from nas.store import FINAL, TrialAdded, TrialState
from nas.store.types import storable

OWNER = "host:1:a"
OBJECTIVES = [{"name": "bits", "direction": "minimize"}]


def test_a_study_reads_back_as_it_was_made(store, study):
    assert store.study("quick") == study
    assert study.config == {"budget": 10}
    assert (study.seed, study.data_hash, study.sequence) == (7, "data", 0)
    assert [version.text for version in store.space_versions(study.id)] == ["kind: decoder"]
    assert abs(study.created_at - datetime.now(UTC)) < timedelta(minutes=1)


def test_a_study_of_the_same_name_is_refused(store, study):
    with pytest.raises(UsageError, match="'quick' exists already"):
        store.create_study("quick", {}, "kind: encoder", 0, OBJECTIVES)
    assert [space.text for space in store.space_versions(study.id)] == ["kind: decoder"]


def test_an_unknown_study_is_answered_with_the_nearest_name(store, study):
    with pytest.raises(UsageError, match=r"No study named 'quik'. Did you mean 'quick'. Known: quick"):
        store.study("quik")


def test_an_empty_database_says_that_there_is_no_study(store):
    with pytest.raises(UsageError, match="there is none in this database yet"):
        store.study("quick")


def test_a_study_takes_a_larger_budget_and_a_larger_space(store, study, add):
    store.update_study(study.id, config={"budget": 20})
    assert store.add_space_version(study.id, "kind: decoder") == 0  # nothing new
    assert store.add_space_version(study.id, "kind: encoder") == 1
    assert store.study("quick").config == {"budget": 20}

    add(store, study, 0)
    add(store, study, 1, space_version=0)
    assert [trial.space_version for trial in store.trials(study.id)] == [1, 0]


def test_only_config_and_data_of_a_study_change(store, study):
    with pytest.raises(ValueError, match="Only config, data_hash, ending, objectives of a study may change"):
        store.update_study(study.id, seed=8)


def test_a_trial_goes_from_waiting_to_complete(store, study, add):
    added = add(store, study, 0, parents=[3, 4], cheap_values={"flops": 5.0})
    assert store.trial(study.id, 0).state is TrialState.WAITING

    (unit,) = store.lease(study.id, OWNER)
    assert (unit.id, unit.attempt, unit.rung, unit.architecture) == (added.unit.id, 1, 0, "width: 0")
    running = store.trial(study.id, 0)
    assert (running.state, running.parents, running.cheap_values) == (TrialState.RUNNING, (3, 4), {"flops": 5.0})

    sequence = store.finish(
        unit.id,
        OWNER,
        1,
        {"bits": 1.5, "accuracy": 0.5},
        {"tokens": 10.0, "odd": math.nan},
        last=True,
        curve=[(50, 3.0), (100, math.nan)],
    )
    trial = store.trial(study.id, 0)
    assert sequence == 1
    assert (trial.state, trial.rung) == (TrialState.COMPLETE, 0)
    assert trial.values == {"bits": 1.5, "accuracy": 0.5, "flops": 5.0}
    assert trial.created_at <= trial.started_at <= trial.finished_at
    assert store.curve(study.id, 0) == [(50, 3.0), (100, None)]
    assert store.metrics(study.id, 0, 0) == {"tokens": 10.0, "odd": None}
    add(store, study, 1)
    assert store.last_metrics(study.id) == {0: {"tokens": 10.0, "odd": None}}, "and none of trial 1"
    assert store.seconds(study.id) == {0: 0.0}
    assert store.units(study.id, 0)[0].values == trial.values


def test_a_promotion_continues_from_the_checkpoint_below(store, study, add):
    added = add(store, study, 0, owner=OWNER)
    assert store.promote(added.trial_id, 1, 300) is None  # rung 0 still runs
    store.finish(added.unit.id, OWNER, 1, {"bits": 2.0}, last=False, checkpoint=("file:///c", "abc"))
    assert store.trial(study.id, 0).state is TrialState.RUNNING
    assert store.promote(added.trial_id, 2, 900) is None  # rung 1 was skipped

    unit = store.promote(added.trial_id, 1, 300, owner=OWNER)
    assert (unit.rung, unit.steps, unit.attempt) == (1, 300, 1)
    assert (unit.start_uri, unit.start_sha256) == ("file:///c", "abc")
    assert store.promote(added.trial_id, 1, 300, owner=OWNER) is None  # there is one already

    assert store.finish(unit.id, OWNER, 1, {"bits": 1.0}, last=True) == 2
    assert store.trial(study.id, 0).values == {"bits": 1.0}
    assert [result.values for result in store.results_since(study.id)] == [{"bits": 2.0}, {"bits": 1.0}]
    assert store.promote(added.trial_id, 2, 900) is None  # complete


def test_the_log_has_whole_records_whose_choices_are_decoded_when_they_are_read(store, study, add):
    shared = {"owner": OWNER, "cheap_values": {"flops": 5.0}}
    added = [add(store, study, number, choices=choices, **shared) for number, choices in enumerate(({"a": 1}, {}))]
    for each in added:
        store.finish(each.unit.id, OWNER, 1, {"bits": 2.0}, last=False)
    above = store.promote(added[0].trial_id, 1, 300, owner=OWNER)
    store.finish(above.id, OWNER, 1, {"bits": 1.0}, last=True)

    trials, results = store.log_since(study.id, 0, 0, 10)
    assert [dict(each.choices) for each in trials] == [{"a": 1}, {}]
    assert [bool(each.choices) for each in trials] == [True, False]
    assert trials[0].choices == {"a": 1} and trials[0].choices["a"] == 1 and len(trials[0].choices) == 1
    assert repr(trials[0].choices) == '{"a":1}'
    assert [each.choices for each in results] == [None, None, {"a": 1}]  # those of rung 0 have their trials
    whole = store.results_since(study.id)
    left_out = {"choices": None, "architecture": "", "cheap_values": {}}
    assert [replace(each, choices=None) for each in results] == [replace(each, **left_out) for each in whole]
    assert [each.cheap_values for each in whole] == [{"flops": 5.0}] * 3


def test_the_same_architecture_may_run_under_another_seed_or_for_another_purpose(store, study, add):
    same = {"architecture": ("0000", "width: 0")}
    assert isinstance(add(store, study, 0, **same), TrialAdded)
    assert isinstance(add(store, study, 1, **same, seed=1), TrialAdded)
    assert isinstance(add(store, study, 2, **same, purpose="final", limit=1), TrialAdded)
    assert store.next_number(study.id) == 3


def test_finals_have_numbers_of_their_own(store, study, add):
    assert (store.next_number(study.id), store.next_number(study.id, FINAL)) == (0, FIRST_FINAL)
    add(store, study, 0)
    add(store, study, FIRST_FINAL, purpose=FINAL)
    assert (store.next_number(study.id), store.next_number(study.id, FINAL)) == (1, FIRST_FINAL + 1)
    add(store, study, 1)

    assert [each.name for each in store.trials(study.id)] == ["trial 0", "trial 1", "final 1"]
    assert [each.number for each in store.log_since(study.id, 0, 0, 10)[0]] == [0, 1], "a strategy is told of no final"
    assert store.trial(study.id, FIRST_FINAL).address == "final-1"


def test_a_trial_that_does_not_exist_is_told_apart_from_a_final(store, study, add):
    for number, said in ((3, "No trial 3.*none yet"), (FIRST_FINAL, "No final 1.*it has no finals yet")):
        with pytest.raises(UsageError, match=said):
            store.trial(study.id, number)
    add(store, study, 0)
    add(store, study, FIRST_FINAL, purpose=FINAL)
    for number, said in ((3, "No trial 3.*the last one is 0"), (FIRST_FINAL + 8, "No final 9.*it has 1 final\\.")):
        with pytest.raises(UsageError, match=said):
            store.trial(study.id, number)


def test_a_proposal_that_cannot_be_built_is_recorded_as_failed(store, study, add):
    added = add(store, study, 0, failure=("build error", "a \0 and \udc80"))
    assert added.unit is None

    trial = store.trial(study.id, 0)
    assert (trial.state, trial.error_kind, trial.error_text) == (
        TrialState.FAILED,
        "build error",
        "a \\x00 and \\udc80",
    )
    (result,) = store.results_since(study.id)
    assert (result.sequence, result.values, result.error_kind) == (1, None, "build error")
    assert store.lease(study.id, OWNER) == []


def test_an_objective_that_is_not_a_number_is_refused(store, study, add):
    unit = add(store, study, 0, owner=OWNER).unit
    with pytest.raises(ValueError, match="'bits' must be finite, but got nan"):
        store.finish(unit.id, OWNER, 1, {"bits": math.nan}, last=True)


def test_results_come_in_the_order_in_which_they_ended(store, study, add):
    units = [add(store, study, number, owner=OWNER).unit for number in range(5)]
    for unit in (units[3], units[0], units[4]):
        store.finish(unit.id, OWNER, 1, {"bits": float(unit.number)}, last=True, seconds=2.0)
    store.fail(units[1].id, OWNER, 1, "too slow", "", 3.0)

    results = store.results_since(study.id)
    assert [result.sequence for result in results] == [1, 2, 3, 4]
    assert [result.number for result in results] == [3, 0, 4, 1]
    assert store.results_since(study.id, 2) == results[2:]
    assert store.results_since(study.id, 1, limit=2) == results[1:3]
    assert store.trained_seconds(study.id, "search") == 9.0


def test_an_architecture_is_found_by_the_start_of_its_hash(store, study, add):
    for number, hash in enumerate(["abc1", "abd2", "f00"]):
        add(store, study, number, architecture=(hash, f"text of {hash}"))

    assert store.architecture("f") == ("f00", "text of f00")
    with pytest.raises(UsageError, match="Several architectures begin with 'ab'"):
        store.architecture("ab")
    with pytest.raises(UsageError, match="No architecture whose hash begins with '9'"):
        store.architecture("9")


def test_an_unknown_trial_is_answered_with_those_there_are(store, study, add):
    for number in (4, -1, 2**31, 3221225472, 10**30):  # the last ones are more than a column holds
        assert store.units(study.id, number) == []
        with pytest.raises(UsageError, match=f"No trial {number} in this study: there are none yet"):
            store.trial(study.id, number)
    add(store, study, 0)
    with pytest.raises(UsageError, match="the last one is 0"):
        store.trial(study.id, 4)


def test_what_was_trained_is_the_sum_over_the_units_that_ended(store, study, add):
    units = [add(store, study, number, owner=OWNER, steps=100, costs=(7, 2.0**number)).unit for number in range(4)]
    store.finish(units[0].id, OWNER, 1, {"bits": 1.0}, last=False, seconds=4.0)
    longer = store.promote(units[0].trial_id, 1, 300, owner=OWNER)
    store.finish(longer.id, OWNER, 1, {"bits": 1.0}, last=True, seconds=8.0)
    store.fail(units[1].id, OWNER, 1, "too slow", "", 6.0)
    store.fail(units[2].id, OWNER, 1, "no value", "", None)

    found = store.trained(study.id)
    assert (found.steps, found.flops, found.device_seconds) == (500, 300 + 200 + 400, 4 + 8 + 6 + 1)
    assert (store.trial(study.id, 2).parameters, store.trial(study.id, 2).step_flops) == (7, 4.0)
    store.finish(add(store, study, 4, owner=OWNER).unit.id, OWNER, 1, {"bits": 1.0}, last=True)
    assert store.trained(study.id).flops is None, "its FLOPs are not known"


def test_how_a_search_ended_is_kept_until_it_goes_on(store, study):
    store.update_study(study.id, ending={"limit": "minutes"})
    assert store.study(study.name).ending == {"limit": "minutes"}
    store.update_study(study.id, config=study.config, ending=None)
    assert store.study(study.name).ending is None


@given(st.text(st.characters(), max_size=60), st.integers(1, 60))
def test_a_text_of_any_length_is_stored_within_a_limit(text, most):
    stored = storable(text, most)
    stored.encode()  # valid UTF-8
    assert "\0" not in stored
    if len(text) <= most:
        assert stored == storable(text)


def test_the_middle_of_a_long_message_is_left_out(store, study, add):
    unit = add(store, study, 0, owner=OWNER).unit
    store.fail(unit.id, OWNER, 1, "task error", "begin" + "x" * 5_000_000 + "end")
    text = store.trial(study.id, 0).error_text
    assert len(text) <= 64 * 1024
    assert text.startswith("begin") and text.endswith("end") and "characters are left out" in text
