"""Tests that run in forks: every report arrives, a file stays in one process, and a process that dies is no success."""

import platform
import re
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from tests.workers import ONE_PROCESS, SET_ATTRIBUTES, pytest_cmdline_main

LINUX = re.match(r"(\d+)\.(\d+)", platform.release()) if platform.system() == "Linux" else None
GRANTS_TURNS = LINUX and (int(LINUX[1]), int(LINUX[2])) >= (6, 12) and platform.machine() in SET_ATTRIBUTES
FILES = {
    "conftest.py": "from tests.workers import pytest_addoption, pytest_cmdline_main, pytest_runtestloop",
    "test_first.py": """
import os, pytest

@pytest.fixture(scope="module")
def process():
    return os.getpid()

@pytest.mark.parametrize("number", range(5))
def test_stays(process, number):
    assert process == os.getpid() != os.getppid()

@pytest.mark.skip(reason="to be counted")
def test_skipped():
    pass
""",
    "test_second.py": """
import os

def test_fails(tmp_path):
    os.system("echo said before the end")
    assert [1, 2] == [1, 3]
""",
    "test_third.py": """
import os

def test_passes():
    pass

def test_ends_its_process():
    os._exit(3)

def test_is_not_reached():
    pass
""",
}


def run(folder, *options):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:hypothesispytest", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "--rootdir", folder, "--workers", "2", *options, folder], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout


@pytest.fixture
def folder(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def test_all_reports_arrive_and_a_process_that_ends_fails_its_tests(folder):
    ended, said = run(folder)

    assert ended == 1
    assert re.search(r"3 failed, 6 passed, 1 skipped", said)
    assert "assert [1, 2] == [1, 3]" in said and "said before the end" in said
    assert said.count("the process that ran the tests of this file ended too early") >= 2
    assert "test_third.py::test_is_not_reached" in said


def test_workers_end_when_the_process_that_started_them_is_killed(tmp_path):
    (tmp_path / "conftest.py").write_text(FILES["conftest.py"])
    for name in ("first", "second"):
        slow = "def test_slow(number):\n    time.sleep(0.05)\n    pathlib.Path(__file__).with_suffix('.ran').touch()"
        cases = "@pytest.mark.parametrize('number', range(400))"
        (tmp_path / f"test_{name}.py").write_text(f"import pathlib, time, pytest\n{cases}\n{slow}\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:hypothesispytest", "-p", "no:cacheprovider"]
    with subprocess.Popen([*command, "--rootdir", tmp_path, "--workers", "2", tmp_path], stdout=subprocess.PIPE) as run:
        while not all((tmp_path / f"test_{name}.ran").exists() for name in ("first", "second")):
            time.sleep(0.02)
        run.kill()
        run.communicate(timeout=10)  # the workers write to the same pipe, so it ends when the last of them has ended


def test_the_first_failure_may_end_the_run(folder):
    ended, said = run(folder, "-x")

    assert ended == 1
    assert "stopping after 1 failures" in said


@pytest.mark.parametrize("option", ["--pdb", "--trace", "--sw", "--sw-skip"])
def test_options_that_need_one_process_are_refused(option):
    given = {name: text == option for name, text in ONE_PROCESS.items()}

    with pytest.raises(pytest.UsageError, match=f"{option} needs all tests in one process: leave out --workers"):
        pytest_cmdline_main(SimpleNamespace(option=SimpleNamespace(workers=2, **given)))
    pytest_cmdline_main(SimpleNamespace(option=SimpleNamespace(workers=0, **given)))


TURNS = """
import ctypes, os, struct

from tests.workers import TURN, take_long_turns

GET_ATTRIBUTES = {"x86_64": 315, "aarch64": 275}[os.uname().machine]


def turn():
    found = ctypes.create_string_buffer(56)
    ctypes.CDLL(None).syscall(GET_ATTRIBUTES, 0, found, 56, 0)
    return struct.unpack_from("=IIQiIQ", found)[-1]


if not take_long_turns():
    print("refused")
elif child := os.fork():
    print(turn() == TURN, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
else:
    os._exit(turn() == TURN)
"""


@pytest.mark.skipif(not GRANTS_TURNS, reason="Linux grants turns of a given length since 6.12")
def test_a_process_that_computes_has_long_turns_and_its_children_have_not(forked):
    done = forked(TURNS)
    if done.stdout == "refused\n":
        pytest.skip("the system refuses the call, as some containers do")
    assert done.stdout == "True 0\n", done.stderr
