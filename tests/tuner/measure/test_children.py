"""A child may crash, hang or lie: each outcome has its type, and the next measurement is as good as any."""

import signal
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from kernels.dispatch.registry import Choice
from tuner.measure.children import MOST_KILLED, Disturbed, Patience, TimeIsUp, _within
from tuner.measure.roofline import Probe
from tuner.measure.worker import RACED, Job, Settings, Worker
from tuner.outcome import LIVES, Kind, Outcome


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
        "is_killed": Kind.KILLED,
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
    assert children.started == 4 + LIVES  # the first, and after each death, a hang, and a change of what all share
    assert children.killed == LIVES
    assert children.killed_seconds > 0


def test_those_that_survive_are_timed_in_turns_without_the_one_that_killed_the_child(children, faulty):
    right, crashed, slow = children.run(job(faulty, "right", "crashes", "slow"))

    assert crashed.kind is Kind.CRASHED
    assert len(right.samples) == len(slow.samples) > 0


def test_a_race_stops_what_is_clearly_slower_after_a_few_samples(children, faulty):
    (raced,) = children.run(job(faulty, "slow", repeats=20, budget_seconds=5.0, best=1.0))

    assert len(raced.samples) == 3


@pytest.mark.parametrize(
    ("first", "second", "samples", "extra"), [(6.0, 1.0, 9, 3), (6.0, 6.0, RACED, 2), (60_000.0, 60_000.0, RACED, 1)]
)
def test_a_first_call_that_is_slow_alone_does_not_end_a_race(faulty, first, second, samples, extra):
    """The first call of compiled code is slow. extra: calls besides the samples; a minute is not spent twice."""
    times, called = iter([first, second]), []

    def timed(call):
        called.append(call())
        return next(times, second)

    worker = Worker(Settings(threads=torch.get_num_threads()))
    worker.clock = SimpleNamespace(now=time.monotonic, time=timed)
    (outcome,) = worker.measure(job(faulty, "right", repeats=9, budget_seconds=5.0, best=1.0)).outcomes

    assert (len(outcome.samples), len(called)) == (samples, samples + extra)


def test_what_refuses_a_problem_or_does_not_exist_is_refused(children, faulty):
    outcomes = children.run(job(faulty, "small", "nobody", rows=128))

    assert [each.kind for each in outcomes] == [Kind.REFUSED, Kind.REFUSED]
    assert "has more than 64 rows" in outcomes[0].message
    assert "no implementation 'nobody'" in outcomes[1].message


def test_a_child_that_was_killed_from_outside_is_replaced(children, faulty):
    children.run(job(faulty, "right"))
    children.child.signal(signal.SIGKILL)

    (again,) = children.run(job(faulty, "right"))
    assert again.kind is Kind.TIMED
    assert children.started == 2


@pytest.fixture
def dying(children, killing):
    """Children that are killed at a step, as by `killing`."""

    def call(*args, **options):
        children.settings = replace(children.settings, load=(*children.settings.load, killing(*args, **options)))
        return children

    return call


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("what", ["definition", "check", "time"])
def test_a_child_that_is_killed_at_a_step_says_nothing_about_a_choice(dying, faulty, what, number):
    children = dying(what, number=number, times=LIVES - 1)
    right, wrong, other = children.run(job(faulty, "right", "wrong", "right", rows=24))

    assert [each.kind for each in (right, wrong, other)] == [Kind.TIMED, Kind.WRONG, Kind.TIMED]
    assert len(right.samples) == len(other.samples) > 0
    assert children.killed == LIVES - 1


def test_a_choice_is_blamed_only_if_it_dies_alone(dying, faulty):
    children = dying("check", times=LIVES)
    outcomes = children.run(job(faulty, "right", "wrong", "is_killed", rows=24))

    assert [each.kind for each in outcomes] == [Kind.TIMED, Kind.WRONG, Kind.KILLED]
    assert outcomes[2].message == "its process ended: SIGKILL"


@pytest.mark.parametrize("what", ["definition", "time"])
def test_if_children_are_killed_again_and_again_nothing_is_blamed(dying, faulty, what):
    children = dying(what, times=100, least=2 if what == "time" else 1)
    with pytest.raises(Disturbed, match=f"killed from outside {MOST_KILLED} times"):
        children.run(job(faulty, "right", "right"))
    assert children.killed == MOST_KILLED


def test_a_definition_that_cannot_be_computed_is_the_fault_of_no_choice(children, faulty):
    (outcome,) = children.run(job(faulty, "right", rows=-1))

    assert (outcome.kind, outcome.message[:29]) == (Kind.CALL, "the definition: RuntimeError:")


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
    assert patience.check("compiled") == 30.0
    patience.learn("compiled", Outcome(Kind.TIMED, (1.0,), seconds=2.0))
    assert patience.check("compiled") == 30.0, "of which the last one took two seconds"
    patience.learn("other", Outcome(Kind.TIMED, (1.0,), seconds=2.0))
    assert patience.check("other") == 20.0
    patience.learn("plain", Outcome(Kind.TIMED, (1.0,), seconds=0.001))
    assert patience.check("plain") == 1.0


def test_nothing_is_waited_for_beyond_the_end_of_the_session(children, faulty):
    children.run(job(faulty, "right"))
    children.end = time.monotonic() + 0.1
    with pytest.raises(TimeIsUp):
        children.run(job(faulty, "hangs"))
    assert children.child is None
    assert "hangs" not in children.patience.known


def test_a_child_that_takes_too_long_to_start_outlives_no_session(children, faulty, tmp_path):
    endless = tmp_path / "endless.py"
    endless.write_text("import time\nwhile True: time.sleep(1)")
    children.settings = replace(children.settings, load=(str(endless),))
    children.end = time.monotonic() + 0.3
    with pytest.raises(TimeIsUp):
        children.run(job(faulty, "right"))
    assert children.child is None


def test_the_server_of_children_that_does_not_start_outlives_no_session_either():
    never = threading.Event()
    with pytest.raises(TimeIsUp):
        _within(0.05, never.wait)
    never.set()
    with pytest.raises(ZeroDivisionError):
        _within(60.0, lambda: 1 / 0)


def test_the_device_says_how_fast_it_is(children):
    assert children.rates(Probe("float32")) > 1e6
