"""What a session decided becomes the table that serves; a lock notices any change."""

import threading

import pytest

from kernels.dispatch import table, tuned
from kernels.dispatch.device import fingerprint
from kernels.dispatch.registry import Choice, Problem
from tuner.outcome import Kind, Outcome
from tuner.search import tables as made


def test_where_nothing_is_right_nothing_is_written_into_the_table(
    pretended, store, faulty, monkeypatch, pretending, tables, run
):
    monkeypatch.setattr(pretending, "outcome", lambda self, choice, repeats: Outcome(Kind.WRONG, message="all"))
    (decision,) = run(store, faulty).decisions

    assert decision.choice is None
    assert made.update("cpu", [decision], 1)[1] == 0


def test_sessions_that_write_at_once_lose_no_entry(tables, monkeypatch):
    """A lock belongs to an open file, so threads exclude each other as processes do."""
    monkeypatch.setattr(made, "_current", lambda entry: True)

    def session(number):
        for rows in range(3):
            problem = Problem("x", "cpu", "float32", (("rows", 10 * number + rows),))
            entry = table.Entry(problem, Choice.of("y"), 1.0, "z")
            made.change("cpu", 1, lambda before, entry=entry: [entry], lambda each: False)

    threads = [threading.Thread(target=session, args=(number,)) for number in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()

    (path,) = tables.glob("*.json")
    assert len(table.read(path).entries) == 24


def test_what_was_measured_elsewhere_is_adopted_when_it_is_sound(pretended, store, faulty, tables, run):
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


def failed(entry, kind=Kind.WRONG):
    """What a verification finds if the choice fails and the default does not."""
    return made.Verified(entry, Outcome(kind), None, Outcome(Kind.TIMED, (2.0,) * 7))


def test_a_default_that_is_wrong_is_told_even_if_the_choice_is_right(faulty):
    entry = table.Entry(faulty.problem(16), Choice.of("right", {"block": 16}), 1.0, "x")
    wrong, timed = Outcome(Kind.WRONG, message="3 of 4096 outputs"), Outcome(Kind.TIMED, (1.0,) * 7)
    found = made.Verified(entry, timed, None, wrong)
    assert str(found) == "correct; the default: wrong: 3 of 4096 outputs"
    assert found.sound and found.message == "the default: wrong: 3 of 4096 outputs"
    assert made.Verified(entry, timed, None, timed).message == ""


@pytest.mark.parametrize("kind", [Kind.WRONG, Kind.CRASHED, Kind.BUILD_ERROR])
def test_a_rejected_choice_does_not_serve_as_that_of_a_near_problem(pretended, store, faulty, tables, run, kind):
    report = run(store, faulty, 16, 24, 32)
    made.update("cpu", report.decisions, 1)
    entry = tuned.table("cpu").entries[faulty.problem(16)]
    assert len({each.choice for each in tuned.table("cpu").entries.values()}) == 1

    assert made.reject("cpu", [failed(entry, kind)], 1, store) == 1

    default = Choice.of("right", {"block": 8})
    served = tuned.explain(faulty.FAULTY, faulty.problem(16))
    assert (served.why, served.choice, served.milliseconds) == ("exact", default, 2.0)
    assert entry.choice != default
    assert tuned.explain(faulty.FAULTY, faulty.problem(24)).choice == entry.choice


def test_a_choice_is_rejected_wherever_it_was_measured_and_never_one_that_was_decided_meanwhile(
    pretended, store, faulty, tables, run
):
    path, _ = made.update("cpu", run(store, faulty, 16, 24).decisions, 1)
    path.write_text(path.read_text().replace(fingerprint().key, "elsewhere"))
    tuned.use("cpu", None)
    one, other = tuned.table("cpu").entries.values()
    made.adopt("cpu", [made.Verified(other, Outcome(Kind.TIMED, (1.0,) * 7), None)], 1)

    made.reject("cpu", [failed(one)], 1, store)
    assert tuned.explain(faulty.FAULTY, one.problem).choice == Choice.of("right", {"block": 8})

    entry = table.Entry(other.problem, Choice.of("small", {"block": 8}), 1.0, other.source, made.place("cpu", 1))
    made.change("cpu", 1, lambda before: [entry], lambda each: each.problem == other.problem)
    made.reject("cpu", [failed(other)], 1, store)
    assert tuned.explain(faulty.FAULTY, other.problem).choice == entry.choice


def test_where_the_measurement_cannot_be_kept_a_wrong_choice_does_not_serve_either(
    pretended, store, faulty, tables, run, monkeypatch
):
    def full(*arguments):
        raise OSError("No space left on device")

    made.update("cpu", run(store, faulty, 16).decisions, 1)
    (entry,) = tuned.table("cpu").entries.values()
    monkeypatch.setattr(type(store), "add", full)
    with pytest.raises(OSError, match="No space"):
        made.reject("cpu", [failed(entry)], 1, store)
    assert tuned.explain(faulty.FAULTY, faulty.problem(16)).choice == Choice.of("right", {"block": 8})


def test_a_choice_whose_code_has_changed_serves_again_when_it_is_found_sound(pretended, store, faulty, tables, run):
    path, _ = made.update("cpu", run(store, faulty, 16).decisions, 1)
    (before,) = tuned.table("cpu").entries.values()
    path.write_text(path.read_text().replace(before.source, "earlier"))
    tuned.use("cpu", None)
    assert tuned.explain(faulty.FAULTY, faulty.problem(16)).why == "default"

    (entry,) = tuned.table("cpu").entries.values()
    assert made.adopt("cpu", [made.Verified(entry, Outcome(Kind.TIMED, (1.0,) * 7), None)], 1) == 1
    assert tuned.explain(faulty.FAULTY, faulty.problem(16)).choice == entry.choice


def test_one_operation_that_is_gone_does_not_hide_the_others(faulty, monkeypatch):
    monkeypatch.setattr(made.Children, "run", lambda self, job: (Outcome(Kind.TIMED, (1.0,) * 7),) * len(job.choices))
    choice = Choice.of("right", {"block": 16})
    gone, other = (
        Problem("gone", "cpu", "float32", (("rows", 8),)),
        Problem("linear_cross_entropy", "cpu", "float32", ()),
    )
    some = [table.Entry(each, choice, 1.0, "x") for each in (gone, other, faulty.problem(16))]

    found = list(made.verify("cpu", some, 1))

    assert [each.sound for each in found] == [False, False, True]
    assert "no operation is called 'gone'" in found[0].outcome.message
    assert "has no size or flag" in found[1].outcome.message


def test_decisions_become_the_table_that_serves(pretended, store, faulty, tables, run):
    report = run(store, faulty)
    path, count = made.update("cpu", report.decisions, 1)
    served = tuned.explain(faulty.FAULTY, faulty.problem(32))

    assert (path.parent, count) == (tables, 1)
    assert (served.why, served.choice) == ("exact", Choice.of("right", {"block": 16}))


def test_a_damaged_table_is_put_aside_when_a_new_one_is_written(pretended, store, faulty, tables, run, monkeypatch):
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
