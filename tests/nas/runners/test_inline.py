"""Units in this process."""

import os
import signal
import time

import pytest

from nas.runners import _here
from nas.runners.contract import LaterRunner
from nas.runners.inline import InlineRunner
from nas.work import FailureKind, Outcome, Progress, Work


def work(trial=0):
    return Work(
        study="s", trial=trial, rung=0, architecture="", task={}, recipe={}, steps=3, horizon=3, seed=0, checkpoint=None
    )


def test_units_run_in_the_order_in_which_they_come():
    runner = InlineRunner(lambda work, progress: Outcome(trial=work.trial, rung=work.rung, seconds=0.0))
    assert runner.wait(0) == []
    for trial in (3, 1, 2):
        runner.submit(work(trial))
    assert [runner.wait(0)[0].trial for _ in range(3)] == [3, 1, 2]
    assert runner.wait(0) == []


def test_a_unit_that_is_to_stop_is_interrupted_at_its_next_report():
    steps = []

    def run(work, progress):
        for step in range(10):
            steps.append(step)
            if step == 2:
                runner.stop_soon()
            progress(Progress(step, 10, 1.0, 1.0))

    runner = InlineRunner(run)
    runner.submit(work())
    with pytest.raises(KeyboardInterrupt):
        runner.wait(0)
    assert signal.alarm(0) == 0  # no alarm is left that would end the process
    assert steps == [0, 1, 2] and runner.progress() == {}
    assert runner.interrupt(1.0) == [] and runner.wait(0) == []


def test_a_unit_that_never_reports_is_broken_off(monkeypatch):
    monkeypatch.setattr(_here, "PATIENCE_SECONDS", 1)

    def run(work, progress):
        runner.stop_soon()
        time.sleep(60)

    runner = InlineRunner(run)
    runner.submit(work())
    with pytest.raises(KeyboardInterrupt):
        runner.wait(0)


def test_a_task_that_turns_an_interrupt_into_an_error_does_not_fail():
    def run(work, progress):
        runner.stop_soon()
        try:
            progress(Progress(1, 10, 1.0, 1.0))
        except BaseException as error:
            raise RuntimeError("something went wrong") from error

    runner = InlineRunner(run)
    runner.submit(work())
    with pytest.raises(KeyboardInterrupt):
        runner.wait(0)


@pytest.mark.parametrize("raised", [GeneratorExit, SystemExit])
def test_what_a_task_raises_by_itself_is_its_failure(monkeypatch, raised):
    """In a search, where Ctrl-C has a handler of its own."""

    def run(work, progress):
        raise raised

    runner = InlineRunner(run)
    runner.submit(work())
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        (outcome,) = runner.wait(0)
    finally:
        signal.signal(signal.SIGINT, before)
    assert outcome.failure.kind is FailureKind.TASK_ERROR and raised.__name__ in outcome.failure.message
    assert runner.wait(0) == []


def test_progress_is_known_while_a_unit_runs():
    seen = []

    def run(work, progress):
        progress(Progress(1, 3, 2.0, 10.0))
        seen.append(runner.progress())
        return Outcome(trial=work.trial, rung=0, seconds=float(os.getpid()))

    runner = InlineRunner(run)
    runner.submit(work(7))
    assert runner.wait(0)[0].seconds == os.getpid()
    assert seen == [{(7, 0): Progress(1, 3, 2.0, 10.0)}] and runner.progress() == {}


def test_a_later_runner_starts_with_its_first_unit_only():
    class Four(InlineRunner):
        workers, capacity, isolates = 4, 5, False

    def start():
        started.append(Four(lambda work, progress: Outcome(trial=work.trial, rung=0, seconds=1.0)))
        return started[-1]

    started: list[Four] = []
    later = LaterRunner(start)
    assert (later.workers, later.capacity, later.isolates) == (1, 1, True)
    assert later.wait(0) == [] and later.interrupt(0) == [] and not later.progress()
    later.stop_soon()
    later.close()
    assert not started
    for _ in range(2):
        later.submit(work(3))
        assert (later.workers, later.capacity, later.isolates) == (4, 5, False)
    assert [each.trial for each in later.wait(0)] == [3] and later.wait(0) and not later.progress()
    later.submit(work(3))
    assert later.interrupt(0) == [] and later.wait(0) == []
    later.close()
    assert len(started) == 1
