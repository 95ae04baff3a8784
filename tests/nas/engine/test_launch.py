"""How a search starts: its database, its study, and a second search on the same study."""

from dataclasses import replace

import pytest

from nas.config.parts import Parts, parts
from nas.config.schema import Named
from nas.engine import launch, planning, session
from nas.engine.loop import Search
from nas.engine.resolve import resolve
from nas.errors import NasError, StoreError, UsageError
from nas.runners.inline import InlineRunner
from nas.store import Store, TrialState, open_store
from nas.work import Failure, FailureKind


def test_the_folder_of_the_database_is_made(describe, tmp_path):
    config = describe().model_copy(update={"storage": f"sqlite:///{tmp_path}/a/b/c.db"})
    launch.open_for(config).close()
    assert (tmp_path / "a/b/c.db").exists()


@pytest.mark.parametrize("command", [launch.open_for, planning.found])
def test_a_database_that_cannot_be_made_is_named_also_by_a_plan(command, describe, tmp_path):
    (tmp_path / "file").touch()
    config = describe().model_copy(update={"storage": f"sqlite:///{tmp_path}/file/c.db"})
    with pytest.raises(StoreError, match=r"cannot be made"):
        command(config)


@pytest.mark.parametrize("command", [launch.open_for, planning.found])
def test_the_database_of_a_search_is_a_path_and_not_a_url_of_sqlite(command, describe, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = describe().model_copy(update={"storage": "sqlite:///file:d.db?uri=true"})
    with pytest.raises(StoreError, match=r"needs the path of its database, but got SQLite's own URL file:d\.db"):
        command(config)
    assert not list(tmp_path.glob("*.db"))


def test_an_empty_file_becomes_the_database_and_a_plan_accepts_it(describe, tmp_path):
    (tmp_path / "empty.db").touch()
    config = describe().model_copy(update={"storage": f"sqlite:///{tmp_path}/empty.db"})
    assert planning.found(config)[1] == "new"
    with launch.open_for(config) as store:
        launch.enter(store, resolve(config, store))
    assert planning.found(config)[1].startswith("started")


WRONG = {  # changes of a search file that are found after it was read
    "device": {"device": "cuda:77"},
    "learn_from": {"strategy": Named(name="model", options={"learn_from": "gone"})},
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_new_search_that_is_refused_makes_no_file_and_a_plan_refuses_it_too(wrong, describe, tmp_path):
    config = describe(objectives="[loss]").model_copy(update=WRONG[wrong])
    messages = []
    for command in (launch.search, launch.finals, planning.plan):
        with pytest.raises(NasError) as caught:
            command(config)
        messages.append(str(caught.value))
    assert len(set(messages)) == 1 and not list(tmp_path.rglob("*.db"))


def test_a_study_is_entered_by_whoever_comes_second(describe):
    config = describe()
    with launch.open_for(config) as store:
        first = launch.enter(store, resolve(config, store))
        assert launch.enter(store, resolve(config, store)).id == first.id
        larger = describe(budget="{trials: 99}")
        launch.enter(store, resolve(larger, store))
        assert store.study("tried").config["budget"]["trials"] == 99


def test_another_database_and_another_cluster_are_taken_from_the_command_line(describe, tmp_path):
    config = describe()
    assert launch.override(config) == config
    assert launch.override(config, storage="sqlite:///else.db").storage == "sqlite:///else.db"
    given = launch.override(config, address="host:6379").runner
    assert (given.name, given.options) == ("ray", {"address": "host:6379"})
    limited = config.model_copy(update={"runner": given.model_copy(update={"options": {"workers": 2, "gpus": 0.5}})})
    assert launch.override(limited, address="auto").runner.options == {"gpus": 0.5, "address": "auto"}


def test_two_studies_live_in_one_database(describe, search):
    first = describe(budget="{trials: 2}")
    search(first).store.close()
    search(first.model_copy(update={"study": "other"})).store.close()
    with open_store(first.storage) as store:
        assert [study.name for study in store.studies()] == ["tried", "other"]
        assert all(len(store.trials(study.id)) == 2 for study in store.studies())


UNUSABLE = r"checkpoints: the folder .* cannot be used"
FINALS = "{top: 1, seeds: 1, steps: 20, baselines: transformer, match: parameters, shapes: usual, tune: {}}"


@pytest.mark.parametrize("finals", ["{top: 0}", FINALS])
def test_a_study_that_has_ended_is_shown_although_its_checkpoints_cannot_be_written(finals, describe, search, tmp_path):
    (tmp_path / "file").touch()
    config = describe(budget="{trials: 2}", finals=finals)
    moved = config.model_copy(update={"checkpoints": f"{tmp_path}/file/x"})
    with pytest.raises(UsageError, match=UNUSABLE):
        search(moved)
    search(config).store.close()
    assert planning.found(moved)[1].startswith("started")
    with search(moved) as result:
        assert result.best is not None
        assert result.study.config["checkpoints"] == config.checkpoints


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"budget": "{trials: 3}"}),
        ({}, {"finals": FINALS}),
        ({"finals": FINALS}, {"finals": FINALS.replace("seeds: 1", "seeds: 2")}),
        ({"budget": "{trials: 99, minutes: 0.01}"}, {}),  # more workers have more time
    ],
    ids=["budget", "finals", "seeds", "minutes"],
)
def test_a_study_that_has_ended_needs_its_checkpoints_if_it_may_train_more(before, after, describe, search, tmp_path):
    (tmp_path / "file").touch()
    options = {"budget": "{trials: 2}"} | before
    search(describe(**options)).store.close()
    moved = describe(**options | after).model_copy(update={"checkpoints": f"{tmp_path}/file/x"})
    for command in (search, planning.found):
        with pytest.raises(UsageError, match=UNUSABLE):
            command(moved)


def test_a_device_that_this_machine_does_not_have_is_named_before_there_is_a_study(describe):
    config = describe().model_copy(update={"device": "cuda:99"})
    for command in (launch.search, planning.found):
        with pytest.raises(UsageError, match="This machine has no device 'cuda:99'"):
            command(config)
    with open_store(config.storage) as store:
        assert store.studies() == []


def test_a_study_that_has_ended_is_shown_on_a_machine_without_its_device_and_keeps_the_one_it_had(describe, search):
    config = describe(budget="{trials: 2}")
    search(config).store.close()
    elsewhere = describe(budget="{trials: 2}", limits="{attempts: 2}").model_copy(update={"device": "cuda:99"})
    assert planning.found(elsewhere)[1].startswith("started")
    with launch.search(elsewhere) as result:
        assert result.best is not None and result.study.config["device"] == config.device
        assert result.study.config["limits"]["attempts"] == 2


@pytest.mark.parametrize(
    ("before", "after", "finals"),
    [
        ("seeds: 1", "seeds: 2", 4),
        ("steps: 20", "steps: [20, 30]", 4),
        ("steps: 20", "steps: 30", 4),
        ("tune: {}", "tune: {learning_rate: [0.1, 0.2]}", 8),
    ],
    ids=["seeds", "lengths", "length", "tune"],
)
def test_finals_whose_runner_did_not_start_wait_for_the_runner_that_the_file_names(
    before, after, finals, describe, search, monkeypatch
):
    search(describe(budget="{trials: 2}", finals=FINALS)).store.close()
    more = describe(budget="{trials: 2}", finals=FINALS.replace(before, after))

    def unreachable(*given):
        raise NasError("No cluster is there.")

    monkeypatch.setattr(Parts, "runner", unreachable)
    for _ in range(2):
        with pytest.raises(NasError, match="No cluster is there"):
            launch.search(launch.override(more, address="nowhere:1"), quiet=True)
    with pytest.raises(UsageError, match="no device 'cuda:99'"):
        launch.search(more.model_copy(update={"device": "cuda:99"}), quiet=True)
    with search(more) as result:
        assert not result.store.open_units(result.study.id)
        assert len(result.store.trials(result.study.id, purposes=("final",))) >= finals
    assert not planning.found(more)[0].trains


@pytest.mark.parametrize(
    ("budget", "limit"), [("{steps: 25, minutes: 2}", "steps"), ("{trials: 9, minutes: 1}", "space")]
)
def test_a_result_that_is_shown_with_fewer_workers_ended_for_the_same_reason(budget, limit, describe, table):
    class Three(InlineRunner):
        workers = capacity = 3

    def run(work, progress):
        return replace(table(work), seconds=50.0)

    space = "{kind: decoder, width: !choice [16, 24], vocabulary: 256, body: attention}"
    config = describe(budget=budget, **({"space": space} if limit == "space" else {}))
    for runner in (Three(run), None, InlineRunner(run)):
        with launch.search(config, quiet=True, runner=runner) as result:
            assert result.study.ending["limit"] == limit
    finals = config.model_copy(update={"finals": describe(finals=FINALS).finals})
    with launch.search(finals, quiet=True, runner=InlineRunner(run)) as result:
        assert result.verdict and result.study.ending["limit"] == limit


def test_trials_that_an_ended_search_did_not_stop_are_stopped_by_the_next_one(describe, search, monkeypatch):
    config = describe(scheduler="{halving: {rungs: [10, 20], factor: 2}}", budget="{trials: 40, steps: 60}")

    def full(*_):
        raise StoreError("The disk is full.")

    with monkeypatch.context() as patch:
        patch.setattr(Store, "stop_trials", full)
        with pytest.raises(StoreError, match="disk is full"):
            search(config)
    with search(config) as result:
        states = {each.state for each in result.store.trials(result.study.id)}
    assert states == {TrialState.COMPLETE, TrialState.STOPPED} and result.study.ending["limit"] == "steps"


def test_a_unit_that_comes_while_a_result_is_shown_goes_to_the_runner_of_the_file(describe, table, monkeypatch):
    config = describe(budget="{trials: 2}")
    lost = Failure(FailureKind.TASK_ERROR, "no")
    first = InlineRunner(lambda work, progress: replace(table(work), failure=lost if work.trial else None))
    launch.search(config, quiet=True, runner=first).store.close()
    run, runners = Search.run, []

    def after_another_process(self):
        assert session.proposer(parts(self.config), self.store, self.study).retry("task error") == 1
        return run(self)

    monkeypatch.setattr(Search, "run", after_another_process)
    monkeypatch.setattr(Parts, "runner", lambda *_: runners.append(InlineRunner(table)) or runners[-1])
    with launch.search(config, quiet=True) as result:
        states = [each.state for each in result.store.trials(result.study.id)]
    assert len(runners) == 1 and states == [TrialState.COMPLETE, TrialState.FAILED, TrialState.COMPLETE]


def test_a_study_of_another_machine_is_shown_without_its_device(describe, search):
    config = describe(budget="{trials: 2}")
    elsewhere = config.model_copy(update={"device": "cuda:99"})
    with search(config) as result:
        result.store.update_study(result.study.id, config={**result.study.config, "device": "cuda:99"})
    for _ in range(2):
        with launch.search(elsewhere, quiet=True) as result:
            assert result.best is not None and result.study.config["device"] == "cuda:99"


def test_an_ended_study_stays_ended_if_its_search_does_not_start(describe, search, monkeypatch):
    config = describe(budget="{steps: 20}")
    with search(config) as result:
        ending = result.store.study(config.study).ending

        def refuse(*_):
            raise NasError("no such runner")

        monkeypatch.setattr(Parts, "runner", refuse)
        with pytest.raises(NasError, match="no such runner"):
            launch.search(config, quiet=True, retry_failed="out of memory")
        assert ending and result.store.study(config.study).ending == ending


def test_an_ended_study_that_is_opened_with_its_search_file_stays_ended(describe, search):
    config = describe(budget="{steps: 20}")
    with search(config) as result:
        ending = result.store.study(config.study).ending
        assert ending
        assert launch.enter(result.store, resolve(config, result.store)).ending == ending
        elsewhere = config.model_copy(update={"keep": "all"})
        assert launch.enter(result.store, resolve(elsewhere, result.store)).ending == ending
        larger = describe(budget="{steps: 40}")
        assert launch.enter(result.store, resolve(larger, result.store)).ending is None


def test_a_search_leaves_to_another_process_what_its_larger_budget_continues(describe, search, table):
    scheduler = "{halving: {rungs: [2, 4], factor: 2}}"
    config, larger = (describe(scheduler=scheduler, budget=f"{{trials: {n}}}", objectives="[loss]") for n in (5, 9))

    def meanwhile(work, progress=None):
        with open_store(config.storage) as store:
            launch.enter(store, resolve(larger, store))
        return table(work, progress)

    with search(config, meanwhile) as result:
        assert result.study.ending is None
        assert TrialState.STOPPED not in {trial.state for trial in result.store.trials(result.study.id)}
    with search(larger) as result:
        assert result.study.ending["limit"] == "trials"
