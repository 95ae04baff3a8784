"""Units in a child process: whatever a unit does to its process, the search goes on."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nas.errors import NasError
from nas.runners import _process_runner
from nas.runners._process_runner import ProcessRunner
from nas.runners.inline import InlineRunner
from nas.runners.inline_options import InlineOptions
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
    elif what == "closes the output":
        print("not for the result")
        sys.stdout.close()
    elif what == "writes to its connection":
        for number in range(3, 30):
            try:
                os.write(number, bytes(work.task["bytes"]))
            except OSError:
                pass
        time.sleep(60)
    elif what == "forks and lets the fork go on":
        os.fork()
    elif what == "leaves a thread and what cannot be sent":
        import threading
        threading.Thread(target=time.sleep, args=(60,)).start()
        return Outcome(trial=work.trial, rung=work.rung, seconds=0.1, metrics={"loss": lambda: 0})
    elif what == "ends with a signal without a name":
        os.kill(os.getpid(), 40)
    elif what == "spoils the process":
        sys.stdout = sys.stderr = None
        sys.path.clear()
        os.mkdir(work.cache)
        os.chdir(work.cache)
        os.rmdir(work.cache)
        os.umask(0o777)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, signal.SIG_IGN)
    elif what == "relies on the process":
        open(os.path.join(work.cache), "w").close()
        open(work.cache).close()
        import json.tool
        print(os.getcwd())
        assert signal.SIG_IGN not in map(signal.getsignal, (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1))
    elif what == "fails with a long message":
        raise RuntimeError("x" * 10_000_000)
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
        ("interrupts itself", FailureKind.TASK_ERROR, "KeyboardInterrupt"),
    ],
)
def test_a_unit_that_ends_its_process_fails_and_the_next_one_runs(what, kind, text, runner):
    failure = ended(runner, work(what)).failure
    assert failure.kind is kind and text in failure.message
    assert ended(runner, work("works", 1)).device not in ("", str(os.getpid()))


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("leaves a thread and what cannot be sent", "exit code 1"),
        ("ends with a signal without a name", "signal 40"),
    ],
)
def test_what_ends_a_process_in_an_unusual_way_is_a_crash_too(what, text, runner):
    failure = ended(runner, work(what), seconds=30).failure
    assert failure.kind is FailureKind.CRASHED and text in failure.message


@pytest.mark.parametrize("data", [b"\xff" * 100, b"hello", b"\0\0\0\4none", b"\0\0\1\0" + b"x"], ids=ascii)
def test_a_unit_that_writes_to_its_connection_ends_its_process_alone(data, runner, monkeypatch):
    """The last one is the beginning of a message whose end never comes."""
    monkeypatch.setattr(_process_runner, "LATE_SECONDS", 0.2)
    failure = ended(
        runner, work("writes to its connection", task={"bytes": list(data)}, seconds=0.3), seconds=30
    ).failure
    assert failure.kind in (FailureKind.CRASHED, FailureKind.TOO_SLOW)
    assert ended(runner, work("works", 1)).failure is None


def test_a_fork_that_a_unit_lets_go_on_does_not_answer_for_it(runner):
    """Its second outcome was taken for that of the next unit, which then never ended."""
    for number in range(4):
        outcome = ended(runner, work("forks and lets the fork go on" if number % 2 == 0 else "works", number))
        assert outcome.failure is None and outcome.trial == number


def test_what_a_unit_does_to_its_process_does_not_reach_the_next_one(runner, tmp_path):
    first = ended(runner, work("spoils the process", cache=str(tmp_path / "gone")))
    second = ended(runner, work("relies on the process", 1, cache=str(tmp_path / "file")))
    assert first.failure is None and second.failure is None and first.device == second.device
    assert (tmp_path / "file").stat().st_mode & 0o400


def test_a_message_of_ten_megabytes_is_shortened(runner):
    failure = ended(runner, work("fails with a long message")).failure
    assert failure.kind is FailureKind.TASK_ERROR and len(failure.message) < 2**20 + 100


def test_units_share_a_child_whose_output_is_not_that_of_the_search(runner, capfd):
    first, second = ended(runner, work("closes the output")), ended(runner, work("closes the output", 1))
    assert first.failure is None and second.failure is None and first.device == second.device
    assert capfd.readouterr().out == ""


def test_a_unit_that_does_not_notice_its_time_limit_is_ended(runner, monkeypatch):
    monkeypatch.setattr(_process_runner, "LATE_SECONDS", 0.2)
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
    child = runner._child._process
    runner.stop_soon()
    assert runner.interrupt(0.1) == []
    assert (tmp_path / "saved").exists() and child.returncode is not None
    runner.close()


def test_a_child_that_cannot_start_ends_the_search(run):
    runner = ProcessRunner(run, modules=["no_such_module_anywhere"])
    with pytest.raises(NasError, match=r"cannot start: .*exit code 1.*process: false"):
        ended(runner, work("works"))
    runner.close()


ALONE = """
import os, sys, time
from units_of_this_test import run
from nas.runners._process_runner import ProcessRunner
from nas.work import Work
runner = ProcessRunner(run)
runner.submit(Work(study="hangs", trial=0, rung=0, architecture="", task={}, recipe={}, steps=1, horizon=1, seed=0))
while not runner._child or not runner._child.ready:
    runner.wait(0.1)
print(runner._child._process.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the child ends with its next message")
def test_a_child_ends_with_its_parent(run):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    parent = subprocess.Popen([sys.executable, "-c", ALONE], stdout=subprocess.PIPE, text=True, env=environment)
    child = int(parent.stdout.readline())
    parent.send_signal(signal.SIGKILL)
    parent.communicate()
    end = time.monotonic() + 60
    while _runs(child):
        assert time.monotonic() < end
        time.sleep(0.02)


def _runs(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_the_option_chooses_the_process():
    assert isinstance(InlineOptions(process=False).start(), InlineRunner)
    assert isinstance(InlineOptions().start(), ProcessRunner)
