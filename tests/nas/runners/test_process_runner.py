"""Units in a child process: whatever a unit does to its process, the search goes on."""

import os
import sys
import time
from pathlib import Path

import pytest

from nas.errors import NasError
from nas.runners import _process
from nas.runners._process import ProcessRunner
from nas.runners.inline import InlineOptions, InlineRunner
from nas.work import FailureKind, Progress, Work

UNITS = """
import ctypes, os, signal, sys, time
from nas.errors import NasError
from nas.work import Outcome, Progress

def run(work, progress):
    what = work.study
    if what == "leaves":
        os._exit(0)
    elif what == "crashes":
        os.kill(os.getpid(), signal.SIGSEGV)
    elif what == "is killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif what == "is terminated":
        os.kill(os.getpid(), signal.SIGTERM)
        progress(Progress(1, 3, 1.0, 1.0))
    elif what == "turns its end into an error":
        os.kill(os.getpid(), signal.SIGTERM)
        try:
            progress(Progress(1, 3, 1.0, 1.0))
        except BaseException:
            sys.exit(1)
    elif what == "interrupts itself":
        raise KeyboardInterrupt
    elif what == "prints":
        print("not for the result")
    elif what == "leaves a thread and what cannot be sent":
        import threading
        threading.Thread(target=time.sleep, args=(60,)).start()
        return Outcome(trial=work.trial, rung=work.rung, seconds=0.1, metrics={"loss": lambda: 0})
    elif what == "hangs":
        ctypes.PyDLL(None).sleep(60)  # which keeps the interpreter's lock
    elif what == "has no disk":
        raise NasError("The disk is full.")
    elif what == "saves":
        try:
            while True:
                progress(Progress(1, 3, 1.0, 1.0))
                time.sleep(0.02)
        except KeyboardInterrupt:
            time.sleep(0.3)
            open(work.cache, "w").close()
            raise
    return Outcome(trial=work.trial, rung=work.rung, seconds=0.1, device=str(os.getpid()))
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """What runs a unit, as the child can import it."""
    folder = tmp_path_factory.mktemp("units")
    (folder / "units_of_this_test.py").write_text(UNITS)
    sys.path.insert(0, str(folder))
    import units_of_this_test

    yield units_of_this_test.run
    sys.path.remove(str(folder))


@pytest.fixture(scope="module")
def runner(run):
    """A runner that all tests share, so that they share its child."""
    made = ProcessRunner(run)
    yield made
    made.close()


def work(what, trial=0, **changes):
    plain = {"rung": 0, "architecture": "", "task": {}, "recipe": {}, "steps": 3, "horizon": 3, "seed": 0}
    return Work(study=what, trial=trial, **(plain | changes))


def ended(runner, unit, seconds=100):
    runner.submit(unit)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if outcomes := runner.wait(1):
            return outcomes[0]
    raise AssertionError("the unit did not end")


@pytest.mark.parametrize(
    ("what", "kind", "text"),
    [
        ("leaves", FailureKind.CRASHED, "exit code 0"),
        ("crashes", FailureKind.CRASHED, "SIGSEGV"),
        ("is killed", FailureKind.WORKER_LOST, "SIGKILL"),
        ("is terminated", FailureKind.WORKER_LOST, "SIGTERM"),
        ("turns its end into an error", FailureKind.WORKER_LOST, "SIGTERM"),
        ("interrupts itself", FailureKind.WORKER_LOST, "SIGTERM"),
    ],
)
def test_a_unit_that_ends_its_process_fails_and_the_next_one_runs(what, kind, text, runner):
    failure = ended(runner, work(what)).failure
    assert failure.kind is kind and text in failure.message
    assert ended(runner, work("works", 1)).device not in ("", str(os.getpid()))


def test_an_outcome_that_cannot_be_sent_is_a_crash_although_a_thread_goes_on(runner):
    failure = ended(runner, work("leaves a thread and what cannot be sent"), seconds=30).failure
    assert failure.kind is FailureKind.CRASHED and "exit code 1" in failure.message


def test_a_crash_is_told_with_the_line_where_it_happened(runner):
    assert "units_of_this_test.py" in ended(runner, work("crashes")).failure.message


def test_units_share_a_child_whose_output_is_not_that_of_the_search(runner, capfd):
    first, second = ended(runner, work("prints")), ended(runner, work("prints", 1))
    assert first.failure is None and second.failure is None and first.device == second.device
    assert capfd.readouterr().out == ""


def test_a_unit_that_does_not_notice_its_time_limit_is_ended(runner, monkeypatch):
    monkeypatch.setattr(_process, "LATE_SECONDS", 0.2)
    outcome = ended(runner, work("hangs", seconds=0.1))
    assert outcome.failure.kind is FailureKind.TOO_SLOW and "limit of 0.1 seconds" in outcome.failure.message
    assert ended(runner, work("works", seconds=60.0)).failure is None


def test_an_error_that_the_user_has_to_correct_ends_the_search(runner):
    with pytest.raises(NasError, match="The disk is full"):
        ended(runner, work("has no disk"))
    runner.interrupt(0)


def test_an_interrupted_unit_saves_its_state_and_its_process_ends(run, tmp_path):
    runner = ProcessRunner(run)
    runner.submit(work("saves", 7, cache=str(tmp_path / "saved")))
    while not runner.progress():
        assert runner.wait(0.1) == []
    assert runner.progress() == {(7, 0): Progress(1, 3, 1.0, 1.0)}
    child = runner._child.pid
    runner.stop_soon()
    assert runner.interrupt(0.1) == []
    assert (tmp_path / "saved").exists() and not Path(f"/proc/{child}").exists()
    runner.close()


def test_a_child_that_cannot_start_ends_the_search(run):
    runner = ProcessRunner(run, modules=["no_such_module_anywhere"])
    with pytest.raises(NasError, match=r"cannot start: .*exit code 1.*process: false"):
        ended(runner, work("works"))
    runner.close()


def test_the_option_chooses_the_process():
    assert isinstance(InlineOptions(process=False).start(), InlineRunner)
    assert isinstance(InlineOptions().start(), ProcessRunner)
