"""A child may crash, hang or lie: each outcome has its type, and the next measurement is as good as any."""

import multiprocessing
import signal
import sys
import time

import pytest

from kernels.dispatch.registry import Choice
from tuner.measure.children import Patience, TimeIsUp
from tuner.measure.roofline import Probe
from tuner.measure.worker import Job
from tuner.outcome import Kind, Outcome


def job(faulty, *names, rows=16, **changes):
    choices = tuple(Choice.of(name) for name in names)
    return Job(faulty.problem(rows), choices, seed=1, **({"repeats": 5, "budget_seconds": 0.05} | changes))


def test_every_fault_has_its_type_and_the_session_goes_on(children, faulty):
    expected = {
        "right": Kind.TIMED,
        "wrong": Kind.WRONG,
        "wrong_gradient": Kind.WRONG,
        "unwritten": Kind.WRONG,
        "changes_inputs": Kind.WRONG,
        "changes_threads": Kind.WRONG,
        "crashes": Kind.CRASHED,
        "raises": Kind.CRASHED,
        "hangs": Kind.TIMED_OUT,
        "out_of_memory": Kind.OUT_OF_MEMORY,
        "without_gradients": Kind.REFUSED,
        "slow": Kind.TIMED,
    }
    outcomes = {name: children.run(job(faulty, name))[0] for name in expected}

    assert {name: each.kind for name, each in outcomes.items()} == expected
    assert "exit code 3" in outcomes["crashes"].message
    assert "no such kernel" in outcomes["raises"].message
    assert min(outcomes["slow"].samples) > 20 > min(outcomes["right"].samples) > 0
    assert children.started == 4  # the first, and after a crash, a hang, and a change of what all share


def test_those_that_survive_are_timed_in_turns_without_the_one_that_killed_the_child(children, faulty):
    right, crashed, slow = children.run(job(faulty, "right", "crashes", "slow"))

    assert crashed.kind is Kind.CRASHED
    assert len(right.samples) == len(slow.samples) > 0


def test_a_race_stops_what_is_clearly_slower_after_a_few_samples(children, faulty):
    (raced,) = children.run(job(faulty, "slow", repeats=20, budget_seconds=5.0, best=1.0))

    assert len(raced.samples) == 3


def test_what_refuses_a_problem_or_does_not_exist_is_refused(children, faulty):
    outcomes = children.run(job(faulty, "small", "nobody", rows=128))

    assert [each.kind for each in outcomes] == [Kind.REFUSED, Kind.REFUSED]
    assert "has more than 64 rows" in outcomes[0].message
    assert "no implementation 'nobody'" in outcomes[1].message


def test_a_child_that_was_killed_from_outside_is_replaced(children, faulty):
    children.run(job(faulty, "right"))
    children.process.kill()
    children.process.join()

    (again,) = children.run(job(faulty, "right"))
    assert again.kind is Kind.TIMED
    assert children.started == 2


def test_no_child_is_left_behind(children, faulty):
    children.run(job(faulty, "right"))
    process = children.process
    children.close()

    assert process.exitcode in (0, -signal.SIGKILL)
    assert process not in multiprocessing.active_children()
    assert not children.log.exists()


def test_a_file_that_cannot_be_loaded_is_an_error_that_names_the_reason(patience, tmp_path):
    from tuner.measure.children import Children
    from tuner.measure.worker import Settings

    broken = tmp_path / "broken.py"
    broken.write_text("raise KeyError('nothing registered')")
    with Children(Settings(load=(str(broken),)), patience) as found, pytest.raises(RuntimeError, match="nothing regis"):
        found._ready()


def test_patience_is_learnt_from_good_checks_and_lost_on_those_that_hang():
    patience = Patience(shortest=1.0, longest=60.0)
    assert patience.check("compiled") == 60.0
    patience.learn("compiled", Outcome(Kind.TIMED_OUT))
    assert (patience.check("compiled"), patience.expected("compiled")) == (30.0, 60.0)
    patience.learn("compiled", Outcome(Kind.TIMED, (1.0,), seconds=2.0))
    assert (patience.check("compiled"), patience.expected("compiled")) == (20.0, 2.0)
    patience.learn("plain", Outcome(Kind.TIMED, (1.0,), seconds=0.001))
    assert patience.check("plain") == 1.0


def test_nothing_is_waited_for_beyond_the_end_of_the_session(children, faulty):
    children.run(job(faulty, "right"))
    children.end = time.monotonic() + 0.1
    with pytest.raises(TimeIsUp):
        children.run(job(faulty, "hangs"))
    assert children.process is None
    assert children.patience.hung == {}


def test_a_child_runs_nothing_of_the_script_that_asked_for_it(children, faulty, tmp_path, monkeypatch):
    main = tmp_path / "main.py"
    main.write_text("raise SystemExit(9)")
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(main), raising=False)
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None, raising=False)

    (outcome,) = children.run(job(faulty, "right"))
    assert outcome.kind is Kind.TIMED


def test_the_device_says_how_fast_it_is(children):
    assert children.rates(Probe("float32")) > 1e6
