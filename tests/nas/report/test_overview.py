"""How a study stands, at every moment of its life."""

import pytest

import nas
from nas.engine import leases
from nas.report import overview, tables

HALVING = "{halving: {rungs: [2, 4], factor: 2}}"


@pytest.fixture
def opened(describe, tmp_path):
    with nas.open_study(tmp_path / "mine.db", "mine", describe(scheduler=HALVING, budget="{trials: 6}")) as study:
        yield study


def phase(study):
    return overview.look(study.store, study.record).phase


def test_a_study_goes_through_its_phases(opened, monkeypatch):
    store, study = opened.store, opened.record.id

    assert phase(opened) == "not begun"
    (asked,) = opened.ask()
    assert phase(opened) == "searching"
    monkeypatch.setattr(leases, "is_dead", lambda owner: True)
    assert phase(opened).startswith("interrupted")
    opened.tell(asked, {"loss": 1.0})
    assert phase(opened).startswith("nobody is at work")
    store.stop_trials(study)
    assert phase(opened) == "ended"


def test_a_worker_is_named_by_its_host_and_process(opened):
    opened.store.lease(opened.record.id, "nobody", 1)
    unit = opened.ask()[0]
    text = overview.look(opened.store, opened.record).as_text()

    host, _, pid, *_ = unit.owner.removeprefix("ask/").split("/")
    assert f"at work   {host} process {pid}, by nas ask: 1 unit, lease until" in text


def test_failures_are_grouped_and_the_first_few_named(opened):
    for asked in opened.ask(6):
        opened.tell(asked, failure="broken")

    assert "failed    task error: 6 (trial 0, 1, 2, 3, 4, ...)" in overview.look(opened.store, opened.record).as_text()


def test_the_story_of_a_trial_has_its_parents_and_its_rungs(opened):
    (asked,) = opened.ask()
    opened.tell(asked, {"loss": 1.5}, seconds=3.0)
    told = overview.story(opened.store, opened.record, 0)

    assert told["rungs"] == [
        {"rung": 0, "steps": 2, "state": "done", **opened.best()[0].values, "seconds": 3.0},
    ]
    assert overview.story_text(told) == "mine trial 0: running; random"


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
