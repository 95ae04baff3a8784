"""Metrics of old and new studies are read by the same names; a task cannot take a name of the runner."""

from dataclasses import replace

import pytest

from nas import metrics

OLD = {"loss": 2.0, "test_loss": 2.1, "steps": 10.0, "tokens_per_second": 5.0, "train_loss": 1.9, "test_only": 1.0}
NEW = {"loss": 2.0, "test/loss": 2.1, "run/steps": 10.0, "run/tokens_per_second": 5.0, "run/train_loss": 1.9}


def test_old_names_become_the_new_ones():
    assert metrics.current(OLD) == NEW | {"test_only": 1.0}
    assert metrics.current(NEW) == NEW


def test_a_metric_of_a_task_keeps_its_name_whatever_it_is():
    own = {"steps": 3.0, "train_loss": 1.0, **NEW}
    assert metrics.current(own) == own and metrics.lookup(own, "steps") == 3.0
    reported_from_outside = {"bits_per_byte": 2.0, "steps": 7.0}
    assert metrics.current(reported_from_outside) == reported_from_outside


def test_a_metric_is_found_under_either_name():
    for found in (OLD, NEW):
        assert metrics.lookup(found, "train_loss") == metrics.lookup(found, "run/train_loss") == 1.9
        assert metrics.lookup(found, "test_loss") == metrics.lookup(found, "test/loss") == 2.1
        assert metrics.lookup(found, "accuracy") is None


def test_what_a_unit_may_have_is_known_before_it_runs():
    declared = {"loss": None}
    for name in ("loss", "test/loss", "test_loss", "run/steps", "train_loss"):
        assert metrics.known(name, declared)
    for name in ("error", "test/error", "run/loss"):
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
