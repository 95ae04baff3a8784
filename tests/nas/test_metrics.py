"""A task cannot take a name of the runner, and what a unit may have is known before it runs."""

from dataclasses import replace

import pytest

from nas import metrics


def test_what_a_unit_may_have_is_known_before_it_runs():
    declared = {"loss": None}
    for name in ("loss", "test/loss", "run/steps", "halting_steps"):
        assert metrics.known(name, declared)
    for name in ("error", "test/error", "run/loss", "train_loss"):
        assert not metrics.known(name, declared)


TAKEN = {
    "run/steps": "names that begin with run/ or test/",
    "test/loss": "names that begin with run/ or test/",
    metrics.CURVE: "under this name the search keeps the losses of the training",
    "halting_steps": "the blocks of a model report this number",
    "": "printable characters",
    "x" * 101: "printable characters",
}


@pytest.mark.parametrize(("name", "why"), TAKEN.items())
def test_a_task_cannot_take_a_name_of_the_runner(name, why):
    assert why in metrics.name_problem(name)


def test_all_other_names_are_free():
    for name in ("loss", "steps", "train_loss", "test_loss", "Training loss", "top-1 accuracy", "top/1", "x=1"):
        assert metrics.name_problem(name) == ""
    assert "printable characters, not '3'" in metrics.name_problem(3)


def test_a_loop_of_the_users_own_may_tell_values_on_test_data_and_of_blocks():
    told = ("loss", "test/loss", "halting_steps", metrics.CURVE, "test/error", "run/loss")
    assert [name for name in told if metrics.told_problem(name, told)] == [metrics.CURVE, "test/error", "run/loss"]


def test_a_study_that_holds_such_names_is_read(describe, search, table):
    def unit(work, progress=None):
        found = table(work)
        return replace(found, metrics={**found.metrics, "a/b": 1.0, "x=1": 2.0, metrics.CURVE: 7.0}, curve=((2, 5.0),))

    with search(describe(budget="{trials: 1}"), unit) as result:
        store, study = result.store, result.study.id
        assert store.metrics(study, 0, 0)["a/b"] == 1.0
        assert store.metrics(study, 0, 0)["x=1"] == 2.0
        assert store.curve(study, 0) == [(2, 5.0), (10, 7.0)]
