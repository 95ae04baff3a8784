"""A study from Python: ask, tell, best, pareto; leases keep two askers apart; threads may share it."""

import itertools
import sys
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial

import numpy as np
import pytest
import sqlalchemy
import torch

import nas
from nas import report
from nas.errors import StoreError, UsageError
from nas.store import UnitState
from nas.study import LeaseLost, resume
from nas.work import Outcome

HALVING = "{halving: {rungs: [2, 4], factor: 2}}"


@pytest.fixture
def opened(describe, tmp_path):
    with nas.open_study(tmp_path / "mine.db", "mine", describe(scheduler=HALVING, budget="{trials: 6}")) as study:
        yield study


def test_a_loop_of_asking_and_telling_goes_through_all_rungs(opened):
    while asked := opened.ask():
        (trial,) = asked
        assert opened.tell(trial, {"loss": 10.0 - trial.trial - trial.rung}, seconds=1.0)

    (best,) = opened.best()
    assert best.rung == 1
    assert best.values["loss"] == min(each.values["loss"] for each in opened.best(limit=10) if each.rung == 1)
    assert best.number in {each.number for each in opened.pareto()}
    assert {each.rung for each in opened.pareto()} == {1}
    assert opened.architecture(best.number).hash == best.architecture_hash
    assert opened.store.trained_seconds(opened.record.id) >= 6


def test_a_study_is_opened_again_by_its_name_alone(opened, tmp_path):
    (asked,) = opened.ask()
    opened.tell(asked, {"loss": 1.0})

    with nas.open_study(f"sqlite:///{tmp_path}/mine.db", "mine") as again:
        assert again.name == "mine"
        assert again.best()[0].values["loss"] == 1.0
        assert again.ask()[0].trial == 1


def test_two_askers_never_get_the_same_unit(opened, tmp_path):
    with nas.open_study(tmp_path / "mine.db", "mine") as other:
        units = [*opened.ask(2), *other.ask(2), *opened.ask(1)]

    assert len({each.unit for each in units}) == 5
    assert len({each.architecture.hash for each in units}) == 5


def phase(study):
    """The state of the study, as `nas status` names it."""
    return report.status(study.store, study.store.study(study.name)).phase.split(":")[0]


def loss(trial, steps):
    """What a trial reaches, in a search and in a loop that asks."""
    return trial * 7 % 5 + 1 / steps


def unit(work, progress=None):
    """A unit of a search, as a runner runs it."""
    return Outcome(trial=work.trial, rung=work.rung, seconds=1.0, metrics={"loss": loss(work.trial, work.steps)})


def ask_and_tell(study):
    """Ask and tell until nothing is left."""
    while asked := study.ask():
        study.tell(asked[0], {"loss": loss(asked[0].trial, asked[0].steps)}, seconds=1.0)


@pytest.mark.parametrize("budget", ["{trials: 6}", "{steps: 15}"])
def test_a_study_that_was_only_asked_ends_as_a_search_does(budget, describe, search, tmp_path):
    config = describe(scheduler=HALVING, budget=budget)
    with search(config, unit) as result, nas.open_study(tmp_path / "mine.db", "mine", config) as study:
        ask_and_tell(study)
        assert phase(study) == "ended"
        assert study.store.study("mine").ending == result.study.ending
        states = [[trial.state for trial in each.store.trials(1)] for each in (study, result)]
        assert states[0] == states[1] and "stopped" in states[0]


def test_a_study_has_not_ended_while_a_unit_runs(opened):
    units = opened.ask(4)
    while asked := opened.ask():
        opened.tell(asked[0], {"loss": 2.0})
    assert phase(opened) == "searching" and opened.store.study("mine").ending is None
    for each in units:
        opened.tell(each, {"loss": 3.0})
    assert phase(opened) == "paused", "trials may be promoted"
    ask_and_tell(opened)
    assert phase(opened) == "ended"


@pytest.fixture
def two(describe, tmp_path):
    """(a study, the same one in another process, the last trial that it holds). That trial could be promoted."""
    config = describe(scheduler=HALVING, budget="{trials: 4}", objectives="[loss]")
    with (
        nas.open_study(tmp_path / "mine.db", "mine", config) as one,
        nas.open_study(tmp_path / "mine.db", "mine") as other,
    ):
        while (asked := other.ask()) and asked[0].trial < 3:
            other.tell(asked[0], {"loss": loss(asked[0].trial, asked[0].steps)})
        yield one, other, asked[0]


def rung_and_phase(study, number):
    return study.store.trial(study.record.id, number).rung, phase(study)


def test_what_is_told_right_after_a_look_at_the_running_units_is_promoted(two, monkeypatch):
    one, other, held = two
    look = one._is_idle

    def is_idle():
        found = look()
        other.tell(held, {"loss": 0.5})
        return found

    monkeypatch.setattr(one, "_is_idle", is_idle)
    assert one.ask() == [] and phase(one) == "paused"
    ask_and_tell(other)
    assert rung_and_phase(other, 3) == (1, "ended")


def test_what_is_told_while_a_study_looks_for_work_is_promoted(two, monkeypatch):
    one, other, held = two
    lease, units = one._leased, [held]

    def leased(*given):
        """Another process takes the work right before, and tells its result right after."""
        units.extend(other.ask() if len(units) == 0 else [])
        found = lease(*given)
        while units:
            other.tell(units.pop(), {"loss": 0.5})
        return found

    monkeypatch.setattr(one, "_leased", leased)
    assert one.ask() == []
    assert rung_and_phase(other, 3) == (1, "ended")


def test_a_study_whose_budget_another_process_made_larger_has_not_ended(opened, describe, tmp_path):
    larger = describe(scheduler=HALVING, budget="{trials: 7}")
    with nas.open_study(tmp_path / "mine.db", "mine", larger) as other:
        ask_and_tell(opened)
        assert phase(opened) == "paused"
        ask_and_tell(other)
        assert phase(opened) == "ended"
        assert len(other.store.trials(other.record.id)) == 7


def test_a_study_that_its_minutes_ended_goes_on_when_it_is_asked(describe, search, tmp_path):
    config = describe(budget="{trials: 9, minutes: 0.04}")
    search(config).store.close()
    with nas.open_study(tmp_path / "tried.db", "tried") as study:
        assert phase(study) == "ended"
        (asked,) = study.ask()
        study.tell(asked, {"loss": 1.0})
        assert phase(study) == "paused"


def test_a_lost_lease_records_nothing(opened):
    (first,) = opened.ask()
    assert opened.store.release([first.unit], first.owner) == [first.unit]  # as when it ran out
    (second,) = opened.ask()

    assert second.unit == first.unit
    assert not opened.renew(first)
    assert not opened.tell(first, {"loss": 1.0})
    assert not opened.tell(first, failure="late")
    assert opened.best() == []
    assert opened.renew(second)
    assert opened.tell(second, {"loss": 2.0})
    with pytest.raises(LeaseLost, match="Nothing was recorded"):
        resume(opened, second.owner, second.unit)


def test_a_missing_metric_is_told_and_the_unit_stays_the_askers(opened):
    (asked,) = opened.ask()
    with pytest.raises(UsageError, match="loss"):
        opened.tell(asked, {"lost": 1.0})
    with pytest.raises(UsageError, match="not both"):
        opened.tell(asked, {"loss": 1.0}, failure="broken")

    assert opened.store.open_units(opened.record.id) == {UnitState.RUNNING: 1}
    assert opened.tell(resume(opened, asked.owner, asked.unit), {"loss": 1.0})


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_value_that_is_not_finite_is_recorded_as_a_failure(value, opened):
    (asked,) = opened.ask()

    assert opened.tell(asked, {"loss": value})
    assert opened.store.trial(opened.record.id, asked.trial).error_kind == "not finite"


def test_one_call_gives_a_limited_number_of_units_in_batches(describe, tmp_path, monkeypatch):
    monkeypatch.setattr("nas.study.MOST_UNITS", 5)
    monkeypatch.setattr("nas.study.BATCH", 2)
    with nas.open_study(tmp_path / "mine.db", "mine", describe(budget="{tokens: 1M}")) as study:  # any number of trials
        assert len(study.ask(sys.maxsize)) == 5
        assert [each.trial for each in study.ask(np.int64(3))] == [5, 6, 7]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("place", range(6))
def test_an_error_leaves_nothing_leased_wherever_it_comes(place, error, opened, monkeypatch):
    monkeypatch.setattr("nas.study.BATCH", 2)
    add, calls = opened.store.add_trial, itertools.count()

    def interrupted(*given, **options):
        """Right after a unit was stored."""
        added = add(*given, **options)
        if next(calls) == place:
            raise error
        return added

    monkeypatch.setattr(opened.store, "add_trial", interrupted)
    with pytest.raises(error):
        opened.ask(6)
    assert opened.store.open_units(opened.record.id) == {UnitState.QUEUED: place + 1}
    assert [each.trial for each in opened.ask(6)] == list(range(6))


def test_units_that_were_given_back_are_given_back_again(opened, monkeypatch):
    """With few names: PostgreSQL takes 65,535."""
    monkeypatch.setattr("nas.study.BATCH", 2)
    add, calls, names = opened.store.add_trial, itertools.count(), []
    release = opened.store.release_all

    def failing(*given, **options):
        if next(calls) > 3:
            raise ValueError
        return add(*given, **options)

    monkeypatch.setattr(opened.store, "add_trial", failing)
    monkeypatch.setattr(
        opened.store, "release_all", lambda study, owners: names.append(owners) or release(study, owners)
    )
    for _ in range(2):
        with pytest.raises(ValueError):
            opened.ask(8)
        assert opened.store.open_units(opened.record.id) == {UnitState.QUEUED: 4}
    assert max(map(len, names)) <= 6


@pytest.mark.parametrize("error", [KeyboardInterrupt, TimeoutError])
def test_a_signal_in_the_middle_of_a_statement_leaves_nothing_leased(error, opened, monkeypatch):
    execution = sqlalchemy.engine.default.DefaultExecutionContext
    answer = execution._setup_result_proxy
    for place in range(2, 20, 2):
        calls = itertools.count()

        def interrupted(self, calls=calls, place=place):
            if next(calls) == place:
                raise error
            return answer(self)

        with monkeypatch.context() as patch:
            patch.setattr(execution, "_setup_result_proxy", interrupted)
            with pytest.raises(error):
                opened.ask(12)
        assert UnitState.RUNNING not in opened.store.open_units(opened.record.id), place
    assert [each.trial for each in opened.ask(12)] == list(range(6))


@pytest.mark.parametrize("error", [KeyboardInterrupt, StoreError])
def test_after_an_error_the_same_study_asks_as_one_that_is_opened_again(error, opened, monkeypatch):
    """Also if a promotion was not stored, or if only some of the results were told to the scheduler."""
    for asked in opened.ask(4):
        opened.tell(asked, {"loss": 4.0 - asked.trial})
    read = opened.store.database.read
    for place in itertools.count():
        calls = itertools.count()

        def interrupted(work, calls=calls, place=place, run=opened.store.database.write):
            if next(calls) == place:
                raise error
            return run(work)

        with monkeypatch.context() as patch:
            patch.setattr(opened.store.database, "write", interrupted)
            patch.setattr(opened.store.database, "read", partial(interrupted, run=read))
            try:
                asked = opened.ask(3)
            except error:
                continue
        break
    assert place > 5
    assert [(each.trial, each.rung) for each in asked] == [(3, 1), (2, 1), (4, 0)]


def test_an_error_after_the_units_were_leased_gives_them_back(opened, monkeypatch):
    monkeypatch.setattr(opened, "_go_on", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        opened.ask(3)
    monkeypatch.undo()
    assert [each.trial for each in opened.ask(3)] == [0, 1, 2]


def test_a_unit_of_the_finals_that_was_left_behind_completes_its_trial(opened):
    store, study = opened.store, opened.record.id
    found = opened.ask()[0].architecture
    named = (found.hash, found.text())
    store.update_study(study, ending={"limit": "trials"})
    unit = store.add_trial(
        study, 1, named, seed=9, purpose="final", operator="finalist", choices={}, known_results=0, steps=4
    ).unit
    assert unit.owner is None
    (asked,) = opened.ask()

    assert (asked.trial, asked.purpose) == (1, "final")
    assert store.study("mine").ending, "finals leave an ended search ended"
    assert opened.tell(asked, {"loss": 1.0})
    assert store.trial(study, 1).state == "complete"


def test_a_study_or_a_database_that_is_not_there_is_told(opened, tmp_path):
    with pytest.raises(UsageError, match="'mine'"):
        nas.open_study(tmp_path / "mine.db", "mien")
    with pytest.raises(StoreError, match=r"no study database .*gone\.db"):
        nas.open_study(tmp_path / "gone.db", "mine")


def test_a_file_a_name_and_a_trial_are_built(opened, tmp_path, monkeypatch):
    (asked,) = opened.ask()
    (tmp_path / "asked.yaml").write_text(asked.architecture.text())
    monkeypatch.setenv("NAS_STORAGE", str(tmp_path / "mine.db"))
    tokens = torch.zeros(1, 4, dtype=torch.long)

    for name in (tmp_path / "asked.yaml", "mine:0", f"mine:{asked.architecture.short}"):
        assert nas.build(name)(tokens).shape == (1, 4, 256)
    assert nas.build("universal_transformer:small")(tokens).shape[:2] == (1, 4)


def test_a_unit_is_told_once(opened):
    (asked,) = opened.ask()
    assert opened.tell(asked, {"loss": 1.0})
    assert not opened.tell(asked, {"loss": 0.5})
    assert not opened.tell(asked, failure="late")
    assert opened.store.trial(opened.record.id, asked.trial).values["loss"] == 1.0


@pytest.mark.parametrize(
    ("metrics", "hint"),
    [
        ({"loss": "low"}, "'loss' must be a number, but got 'low'"),
        ({"loss": None}, "must be a number"),
        ({"loss": 1.0, "run/steps": 4}, "'run/steps': names that begin with run/ or test/"),
        ({"loss": 1.0, "training loss": 4}, "'training loss': under this name the search keeps the losses"),
        ({"loss": 1.0, "test/error": 4}, "cannot be called 'test/error'"),
        ({"loss": 1.0, "parameters": 7}, "'parameters' is found by the search before training"),
    ],
)
def test_a_metric_that_cannot_be_told_is_named_and_the_unit_stays_open(metrics, hint, opened):
    (asked,) = opened.ask()
    with pytest.raises(UsageError, match=hint):
        opened.tell(asked, metrics)
    assert opened.tell(asked, {"loss": torch.tensor(1.5), "test/loss": 1.6})


def test_a_failure_has_the_kind_that_was_told(opened):
    first, second = opened.ask(2)
    with pytest.raises(UsageError, match=r"No trial fails as 'oom'\. The kinds: out of memory, not finite"):
        opened.tell(first, failure="no memory", failure_kind="oom")
    with pytest.raises(UsageError, match="needs the failure too"):
        opened.tell(first, {"loss": 1.0}, failure_kind="too slow")
    assert opened.tell(first, failure="no memory", failure_kind="out of memory")
    assert opened.tell(second, failure="broken")
    trials = opened.store.trials(opened.record.id)
    assert [trial.error_kind for trial in trials] == ["out of memory", "task error"]


def test_a_unit_whose_worker_was_lost_is_asked_for_again(opened):
    (asked,) = opened.ask()
    assert opened.tell(asked, failure="the machine is gone", failure_kind="worker lost")
    assert opened.ask()[0].unit == asked.unit


def test_threads_that_share_a_study_read_its_log_in_turn_and_renewing_does_not_wait(opened, monkeypatch):
    (held,) = opened.ask()
    absorb, reads, goes_on, inside = opened._proposer.absorb, threading.Event(), threading.Event(), []

    def slow():
        inside.append("a thread")
        reads.set()
        assert goes_on.wait(10)
        absorb()
        inside.pop()

    monkeypatch.setattr(opened._proposer, "absorb", slow)
    with ThreadPoolExecutor() as threads:
        asked = [threads.submit(opened.ask) for _ in range(2)]
        told = reads.wait(10) and threads.submit(opened.tell, held, {"loss": 1.0})
        renewed = threads.submit(opened.renew, held).result(10)
        wait([told], timeout=0.1)
        at_once, ended = len(inside), told.done()
        goes_on.set()
    assert (renewed, at_once, ended) == (True, 1, False)
    assert told.result() and {each.result()[0].trial for each in asked} == {1, 2}


def test_threads_that_share_a_study_leave_a_log_that_another_process_can_read(opened, tmp_path):
    with ThreadPoolExecutor(4) as threads:
        for each in [threads.submit(ask_and_tell, opened) for _ in range(4)]:
            each.result()
    with nas.open_study(tmp_path / "mine.db", "mine") as again:
        assert again.ask() == [] and phase(again) == "ended"
        assert len(again.store.trials(again.record.id)) == 6
