"""Metrics of old and new studies are read by the same names."""

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
