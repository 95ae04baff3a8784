"""Results, the front, curves and what changed since the last look."""

import json
from datetime import UTC, datetime

import pytest

import nas
from nas import report
from nas.report import trials
from nas.store import Mark, TrialState


@pytest.fixture
def opened(describe, tmp_path):
    scheduler = "{halving: {rungs: [2, 4], factor: 2}}"
    with nas.open_study(tmp_path / "mine.db", "mine", describe(scheduler=scheduler, budget="{trials: 6}")) as study:
        yield study


def numbers(changes):
    return [trial.number for trial in changes.trials]


def test_results_come_without_architectures(opened):
    opened.tell(opened.ask()[0], {"loss": 1.0})
    (found,) = report.results(opened.store, opened.record)

    assert (found.number, found.steps, found.values["loss"]) == (0, 2, 1.0)
    assert (found.architecture, found.choices, found.evidence) == ("", None, None)
    assert opened.store.trial(opened.record.id, 0).architecture.startswith("kind: decoder")


def test_nothing_that_changes_is_missed(opened):
    store, study = opened.store, opened.record
    unstarted = report.changes(store, study)
    assert (numbers(unstarted), unstarted.units) == ([], [])

    first, second = opened.ask(2)
    started = report.changes(store, study, unstarted.mark)
    assert numbers(started) == [0, 1]
    assert [unit.number for unit in started.units] == [0, 1]

    opened.tell(first, {"loss": 1.0})
    ended = report.changes(store, study, started.mark)
    assert numbers(ended) == [0, 1]  # the second still runs
    assert ended.trials[0].values["loss"] == 1.0
    assert ended.mark.sequence == 1

    opened.tell(second, failure="broken")
    failed = report.changes(store, study, ended.mark)
    assert numbers(failed) == [1]
    assert failed.trials[0].state is TrialState.FAILED
    assert numbers(report.changes(store, study, failed.mark)) == []

    store.stop_trials(study.id)
    stopped = report.changes(store, study, failed.mark)
    assert numbers(stopped) == [0]
    assert stopped.trials[0].state is TrialState.STOPPED
    assert json.loads(json.dumps(stopped.to_dict()))["trials"][0]["state"] == "stopped"


def test_a_mark_may_be_a_sequence_number_alone(opened):
    for asked in opened.ask(2):
        opened.tell(asked, {"loss": 1.0})
    opened.store.stop_trials(opened.record.id)

    assert numbers(report.changes(opened.store, opened.record, Mark(1))) == [0, 1]  # stopped ones are always listed
    assert numbers(report.changes(opened.store, opened.record, Mark(1, datetime(2100, 1, 1, tzinfo=UTC)))) == [1]


def test_a_curve_goes_over_all_rungs(opened):
    assert report.curve(opened.store, opened.record, 0) == []


def row(**changes):
    values = {"trial": 0, "loss": 1.0, "rung": 0, "state": "complete", "architecture": "abc", "steps": 2}
    return values | {"arm": "main", "baseline": False, "final": None, "activity": None} | changes


def test_a_table_marks_baselines_and_names_arms_where_there_are_several():
    plain = ["trial", "loss", "rung", "state", "architecture"]

    assert list(trials.shown([row()])[0]) == plain
    assert [each["note"] for each in trials.shown([row(), row(trial=1, baseline=True)])] == ["", "baseline"]
    assert list(trials.shown([row(), row(arm="random")])[0]) == [*plain, "arm"]


def test_a_trial_that_waits_for_its_next_rung_is_paused_in_tables_too(opened):
    first, _ = opened.ask(2)
    opened.tell(first, {"loss": 1.0})
    rows = trials.rows(opened.store, opened.record, report.results(opened.store, opened.record))

    assert [(each["state"], each["activity"]) for each in rows] == [("running", "paused"), ("running", "running")]
    assert [each["state"] for each in trials.shown(rows)] == ["paused", "running"]
