"""How a study stands, at every moment of its life."""

import json

import pytest

import nas
from nas import report
from nas.engine import leases
from nas.report import tables, trials
from nas.report.activity import Activity
from nas.work import Progress

HALVING = "{halving: {rungs: [2, 4], factor: 2}}"


@pytest.fixture
def opened(describe, tmp_path):
    with nas.open_study(tmp_path / "mine.db", "mine", describe(scheduler=HALVING, budget="{trials: 6}")) as study:
        yield study


def phase(study):
    return report.status(study.store, study.record).phase


def test_a_study_goes_through_its_phases(opened, monkeypatch):
    store, study = opened.store, opened.record.id

    assert phase(opened) == "not started"
    (asked,) = opened.ask()
    assert phase(opened) == "searching"
    monkeypatch.setattr(leases, "is_dead", lambda owner: True)
    assert phase(opened).startswith("interrupted")
    opened.tell(asked, {"loss": 1.0})
    assert phase(opened).startswith("paused")
    store.stop_trials(study)
    store.update_study(study, ending={"limit": "minutes"})
    assert report.status(store, store.study(opened.record.name)).phase == "ended"


@pytest.mark.parametrize(("count", "state"), [(1, "paused"), (6, "ended")])
def test_a_study_whose_trials_have_all_failed_is_paused_until_its_budget_is_spent(opened, count, state):
    for _ in range(count):
        opened.tell(opened.ask()[0], failure="no memory")
    assert phase(opened).startswith(state)


def test_a_worker_is_named_by_its_host_and_process(opened):
    opened.store.lease(opened.record.id, "nobody", 1)
    unit = opened.ask()[0]
    text = report.status(opened.store, opened.record).to_text()

    host, _, pid, *_ = unit.owner.removeprefix("ask/").split("/")
    assert f"at work   {host} process {pid}, by nas ask: 1 unit, lease until" in text


def test_a_unit_whose_process_is_gone_does_not_count_as_running(opened, monkeypatch):
    opened.ask()
    monkeypatch.setattr(leases, "is_dead", lambda owner: True)
    seen = report.status(opened.store, opened.record)

    assert (seen.activity, seen.activities) == (Activity.INTERRUPTED, {"interrupted": 1})
    assert "trials    1 of 6: 1 interrupted\n" in seen.to_text()
    assert "unit      trial 0 rung 0: interrupted" in seen.to_text()
    story = report.trials.story(opened.store, opened.record, 0)
    assert "interrupted" in report.trials.story_text(story)
    assert [row["state"] for row in report.trials.shown_rungs(story)] == ["interrupted"]


def test_a_unit_whose_lease_ran_out_does_not_count_as_running(opened):
    opened.ask(lease_seconds=1e-6)

    assert report.status(opened.store, opened.record).activity is Activity.INTERRUPTED


def test_a_trial_that_waits_for_its_next_rung_is_paused(opened):
    first, _ = opened.ask(2)
    opened.tell(first, {"loss": 1.0})
    seen = report.status(opened.store, opened.record)

    assert (seen.activity, seen.activities) == (Activity.RUNNING, {"running": 1, "paused": 1})
    assert seen.states == {"running": 2}


def test_the_progress_of_a_unit_is_what_its_last_renewal_said(opened):
    (asked,) = opened.ask()
    (before,) = report.progress(opened.store, opened.record)
    opened.store.renew([asked.unit], asked.owner, 60, {asked.unit: Progress(1, 2, 2.25, 1000.0)})
    (after,) = report.progress(opened.store, opened.record)

    assert (before.name, before.activity, before.step, before.reported_at) == ("trial 0 rung 0", "running", None, None)
    assert (after.step, after.steps, after.loss, after.tokens_per_second) == (1, 2, 2.25, 1000.0)
    assert after.reported_at is not None
    assert (
        "unit      trial 0 rung 0: running, step 1/2, loss 2.250, 1,000 tokens/s"
        in report.status(opened.store, opened.record).to_text()
    )


def test_a_status_is_plain_data_too(opened):
    asked, _ = opened.ask(2)
    opened.tell(asked, {"loss": 1.5})
    found = json.loads(json.dumps(report.status(opened.store, opened.record).to_dict()))

    assert found["trials"] == {"running": 2}
    assert found["units"] == {"waiting": 0, "running": 1}
    assert found["progress"][0]["number"] == 1
    assert (found["activity"], found["arms"], found["verdict"]) == ("running", {"main": 2}, None)
    assert found["best"]["trial"] == 0


def test_failures_are_grouped_and_the_first_few_named(opened):
    for asked in opened.ask(6):
        opened.tell(asked, failure="broken")

    assert "failed    task error: 6 (trial 0, 1, 2, 3, 4, ...)" in report.status(opened.store, opened.record).to_text()


def test_the_story_of_a_trial_has_its_parents_and_its_rungs(opened):
    (asked,) = opened.ask()
    opened.tell(asked, {"loss": 1.5}, seconds=3.0)
    told = report.story(opened.store, opened.record, 0)

    assert told["rungs"] == [
        {"rung": 0, "steps": 2, "state": "done", **opened.best()[0].values, "seconds": 3.0, "kind": "train"},
    ]
    assert trials.story_text(told) == "mine trial 0: paused; random"


@pytest.mark.parametrize(
    ("value", "said"),
    [(0, "0"), (2.41349, "2.413"), (9999, "9999"), (12_345, "12.3k"), (-3.81e7, "-38.1M"), (0.000312, "0.000312")],
)
def test_numbers_are_short(value, said):
    assert tables.short(value) == said


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0, "0 s"), (89, "89 s"), (90, "2 min"), (3600, "60 min"), (5400, "1.5 h"), (259_200, "3.0 days")],
)
def test_durations_are_said_as_people_say_them(seconds, said):
    assert tables.duration(seconds) == said


def test_a_table_shows_text_as_it_is_and_folds_nothing():
    text = tables.rendered(
        [{"name": "tessera-nas[gpu]", "words": "x " * 300, "count": 12345, "good": True}, {"name": "b"}]
    )
    head, first, second = text.splitlines()

    assert head.split() == ["name", "words", "count", "good"]
    assert first.startswith("tessera-nas[gpu]  x x ")
    assert first.split()[-2:] == ["12,345", "yes"]
    assert second == "b"
