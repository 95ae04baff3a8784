"""How a search starts: its database, its study, and a second search on the same study."""

import pytest

from nas.engine import launch, planning
from nas.errors import StoreError, UsageError
from nas.store import open_store


def test_the_folder_of_the_database_is_made(describe, tmp_path):
    config = describe().model_copy(update={"storage": f"sqlite:///{tmp_path}/a/b/c.db"})
    launch.open_for(config).close()
    assert (tmp_path / "a/b/c.db").exists()


def test_a_folder_that_cannot_be_made_is_named(describe, tmp_path):
    (tmp_path / "file").touch()
    config = describe().model_copy(update={"storage": f"sqlite:///{tmp_path}/file/c.db"})
    with pytest.raises(StoreError, match=r"file/c\.db cannot be made"):
        launch.open_for(config)


def test_a_study_is_entered_by_whoever_comes_second(describe):
    config = describe()
    with launch.open_for(config) as store:
        first = launch.enter(store, config)
        assert launch.enter(store, config).id == first.id
        larger = describe(budget="{trials: 99}")
        launch.enter(store, larger)
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


@pytest.mark.parametrize("objective", ["gradient_norm", "parameters"])
def test_the_first_objective_of_finals_is_a_metric(describe, objective):
    config = describe(objectives=f"[{objective}, loss]")
    config = config.model_copy(update={"finals": config.finals.model_copy(update={"top": 1})})
    for refuse in (planning.plan, launch.search):
        with pytest.raises(UsageError, match=f"{objective} is .*put loss first, or leave out the finals"):
            refuse(config)


def test_a_study_of_an_older_version_whose_finals_a_cost_decides_continues(describe):
    config = describe(objectives="[parameters, loss]")
    with launch.open_for(config) as store:
        launch.enter(store, config)
        finals = config.model_copy(update={"finals": config.finals.model_copy(update={"top": 1})})
        assert launch.enter(store, finals).config["finals"]["top"] == 1


def test_a_study_that_has_ended_is_shown_although_its_checkpoints_cannot_be_written(describe, search, tmp_path):
    (tmp_path / "file").touch()
    config = describe(budget="{trials: 2}")
    moved = config.model_copy(update={"checkpoints": f"{tmp_path}/file/x"})
    with pytest.raises(UsageError, match="checkpoints: the folder"):
        search(moved)
    search(config).store.close()
    assert search(moved).best is not None
