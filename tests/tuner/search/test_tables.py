"""What a session decided becomes the table that serves; a lock notices any change."""

import threading

import pytest

from kernels.dispatch import table, tuned
from kernels.dispatch.device import fingerprint
from kernels.dispatch.registry import Choice, Problem
from tuner.outcome import Kind, Outcome
from tuner.search import tables


def test_where_nothing_is_right_nothing_is_written_into_the_table(
    pretended, store, faulty, monkeypatch, pretending, run
):
    monkeypatch.setattr(pretending, "outcome", lambda self, choice, repeats: Outcome(Kind.WRONG, message="all"))
    (decision,) = run(store, faulty).decisions

    assert decision.choice is None
    assert tables.entries([decision]) == []


def test_few_choices_serve_all_problems_within_a_stated_loss(pretended, store, faulty, run):
    report = run(store, faulty, 8, 32, 128)

    assert sum(len(each.problems) for each in report.buckets) == 3
    assert max(each.loss for each in report.buckets) <= 0.05


def test_the_table_serves_what_lies_between_by_the_bucket(pretended, store, faulty, tables, run):
    from tuner.search import tables as made

    report = run(store, faulty, 32, 64)
    made.update("cpu", report.decisions, 1, report.buckets)
    between = tuned.explain(faulty.FAULTY, faulty.problem(48))
    assert (between.why, between.choice, between.loss) == ("bucket", Choice.of("right", {"block": 16}), 0.0)

    made.update("cpu", run(store, faulty, 128).decisions, 1)  # without buckets: those that are there stay
    assert tuned.explain(faulty.FAULTY, faulty.problem(48)).why == "bucket"
    lock = tables.parent / "lock.json"
    made.lock("cpu", lock, "error")
    lock.write_text(lock.read_text().replace('"loss": 0.0', '"loss": 0.5'))
    with pytest.raises(ValueError, match="was changed after it was locked"):
        table.read(lock)


def test_sessions_that_write_at_once_lose_no_entry(tables, monkeypatch):
    """A lock belongs to an open file, so threads exclude each other as processes do."""
    from tuner.search import tables as made

    monkeypatch.setattr(made, "_current", lambda entry: True)

    def session(number):
        for rows in range(3):
            problem = Problem("x", "cpu", "float32", (("rows", 10 * number + rows),))
            made.change("cpu", 1, [table.Entry(problem, Choice.of("y"), 1.0, "z")])

    threads = [threading.Thread(target=session, args=(number,)) for number in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()

    (path,) = tables.glob("*.json")
    assert len(table.read(path).entries) == 24


def test_what_was_measured_elsewhere_is_adopted_when_it_is_sound(pretended, store, faulty, tables, run):
    from tuner.search import tables as made

    path, _ = made.update("cpu", run(store, faulty, 16).decisions, 1)
    path.write_text(path.read_text().replace(fingerprint().key, "elsewhere"))
    tuned.use("cpu", None)
    assert tuned.explain(faulty.FAULTY, faulty.problem(16)).why == "default"

    (entry,) = tuned.table("cpu").entries.values()
    timed = Outcome(Kind.TIMED, (1.0,) * 7)
    wrong = [made.Verified(entry, Outcome(Kind.WRONG), None)]
    assert made.adopt("cpu", wrong, 1) == 0
    assert tuned.explain(faulty.FAULTY, faulty.problem(16)).why == "default"
    assert made.adopt("cpu", [made.Verified(entry, timed, None)], 1) == 1
    assert tuned.explain(faulty.FAULTY, faulty.problem(16)).why == "near"
    made.update("cpu", run(store, faulty, 16).decisions, 1)
    assert tuned.explain(faulty.FAULTY, faulty.problem(16)).why == "exact"


def test_decisions_become_the_table_that_serves(pretended, store, faulty, tables, run):
    from tuner.search import tables as made

    report = run(store, faulty)
    path, count = made.update("cpu", report.decisions, 1)
    served = tuned.explain(faulty.FAULTY, faulty.problem(32))

    assert (path.parent, count) == (tables, 1)
    assert (served.why, served.choice) == ("exact", Choice.of("right", {"block": 16}))


def test_a_damaged_table_is_put_aside_when_a_new_one_is_written(pretended, store, faulty, tables, run, monkeypatch):
    from tuner.search import tables as made

    messages = []
    monkeypatch.setattr(made.log, "warning", lambda message, *values: messages.append(message % values))

    report = run(store, faulty)
    path = made.path_of("cpu")
    path.parent.mkdir(parents=True)
    path.write_text("{")
    assert made.update("cpu", report.decisions, 1) == (path, 1)
    assert path.with_name(f"{path.name}.damaged").read_text() == "{"
    assert len(messages) == 1 and "a new table begins" in messages[0]
    assert tuned.explain(faulty.FAULTY, faulty.problem(32)).why == "exact"


def test_a_table_keeps_what_it_held_and_a_lock_notices_a_change(pretended, store, faulty, tables, tmp_path, run):
    from tuner.search import tables as made

    made.update("cpu", run(store, faulty, 16).decisions, 1)
    _, count = made.update("cpu", run(store, faulty, 32).decisions, 1)
    assert count == 2

    lock = tmp_path / "lock.json"
    assert made.lock("cpu", lock, "error") == 2
    assert len(table.read(lock).entries) == 2
    lock.write_text(lock.read_text().replace('"block": 16', '"block": 4'))
    with pytest.raises(ValueError, match="was changed after it was locked"):
        table.read(lock)
    with pytest.raises(ValueError, match="miss must be one of"):
        made.lock("cpu", lock, "never")
