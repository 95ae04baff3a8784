"""A supervised child: it answers, dies, hangs, and leaves nothing behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nas.child import Child, Death, Died, Late

TARGETS = """
import ctypes, os, signal, subprocess, sys, time

def crashes():
    ctypes.string_at(0)

def prints():
    os.write(1, b"on stdout, ")
    os.write(2, b"on stderr")
    os._exit(7)

def hangs_outside_python():
    ctypes.PyDLL(None).sleep(60)  # which keeps the interpreter's lock

def starts_another():
    return os.getpid(), subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]).pid

def here():
    return os.getcwd(), os.environ.get("TOLD")

def talks(parent, count):
    for number in range(count):
        parent.send(number)
"""
METHODS = ["spawn", "forkserver", "fork"]


@pytest.fixture(scope="module", autouse=True)
def targets(tmp_path_factory):
    """The module `targets_of_this_test`, as children import it."""
    folder = tmp_path_factory.mktemp("targets")
    (folder / "targets_of_this_test.py").write_text(TARGETS)
    sys.path.insert(0, str(folder))
    yield
    sys.path.remove(str(folder))


@pytest.fixture(scope="module")
def child():
    """A child that the tests share which do not end it."""
    made = Child(method="forkserver")
    yield made
    made.close()


def named(function):
    return f"targets_of_this_test:{function}"


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def await_end(*pids):
    end = time.monotonic() + 60
    while any(map(is_alive, pids)):
        assert time.monotonic() < end
        time.sleep(0.02)


def test_it_calls_functions_and_raises_what_they_raise(child):
    assert child.call(max, 3, 4) == 4 and child.call("os:getpid") == child.pid
    with pytest.raises(ZeroDivisionError) as caught:
        child.call(divmod, 1, 0)
    assert "divmod" not in str(caught.value) and "Traceback" in str(caught.value.__cause__)
    with pytest.raises(RuntimeError, match="cannot be sent"):
        child.call(open, os.devnull)
    assert child.call(abs, -1) == 1


def test_it_has_the_folder_and_the_environment_of_its_parent_as_it_starts(monkeypatch, tmp_path, child):
    monkeypatch.setenv("TOLD", "yes")
    monkeypatch.chdir(tmp_path)
    later = Child(method="forkserver")
    assert later.call(named("here")) == (str(tmp_path), "yes")
    later.close()


@pytest.mark.parametrize("method", METHODS)
def test_a_crash_is_told_with_its_stack(method):
    with pytest.raises(Died, match="SIGSEGV") as caught:
        Child(method=method).call(named("crashes"))
    death = caught.value.death
    assert not death.is_from_outside and "targets_of_this_test.py" in death.last and "in crashes" in death.last


def test_what_it_printed_last_is_known_and_never_on_the_standard_output(capfd):
    with pytest.raises(Died, match="exit code 7") as caught:
        Child(quiet=True).call(named("prints"))
    assert caught.value.death.last == "on stdout, on stderr"
    with pytest.raises(Died) as caught:
        Child().call(named("prints"))
    out, err = capfd.readouterr()
    assert (out, err, caught.value.death.last) == ("", "on stdout, on stderr", "")


@pytest.mark.parametrize(
    ("code", "how", "is_from_outside"),
    [
        (0, "exit code 0", False),
        (-signal.SIGKILL, "SIGKILL", True),
        (-signal.SIGTERM, "SIGTERM", True),
        (-signal.SIGABRT, "SIGABRT", False),
        (-40, "signal 40", True),
        (255, "exit code 255", True),
        (None, "a closed connection", False),
    ],
)
def test_a_death_is_from_outside_or_its_own(code, how, is_from_outside):
    assert (Death(code).how, Death(code).is_from_outside) == (how, is_from_outside)


def test_a_call_that_is_late_ends_the_child_and_what_it_has_started():
    late = Child(method="forkserver")
    own, other = late.call(named("starts_another"))
    with pytest.raises(Late):
        late.call(named("hangs_outside_python"), seconds=0.2)
    await_end(own, other)


def test_a_target_of_its_own_says_more_than_one_thing():
    talking = Child(named("talks"), 3)
    assert [talking.receive() for _ in range(3)] == [0, 1, 2]
    with pytest.raises(Died, match="exit code 0"):
        talking.receive()
    talking.close()


def test_a_fork_runs_what_no_other_process_could_import():
    held = []
    forked = Child(lambda parent: (held.append(1), parent.send(len(held))), method="fork")
    assert forked.receive() == 1 and not held
    forked.close()


ALONE = """
import sys, time
from nas.child import Child
child = Child(method=sys.argv[1])
print(*child.call("targets_of_this_test:starts_another"), flush=True)
child.send(("targets_of_this_test:hangs_outside_python", ()) if sys.argv[2] == "hangs" else ("time:sleep", (60,)))
if sys.argv[2] == "leaves":
    sys.exit()
time.sleep(600)
"""


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("how", ["sleeps", "hangs", "leaves"])
def test_nothing_is_left_when_the_parent_ends(method, how):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", ALONE, method, how]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as parent:
        pids = [int(each) for each in parent.stdout.readline().split()]
        if how != "leaves":
            parent.kill()
    await_end(*pids)


def test_what_a_killed_child_has_started_ends_too():
    made = Child(method="forkserver")
    own, other = made.call(named("starts_another"))
    os.kill(own, signal.SIGKILL)
    await_end(own, other)
    made.kill()
