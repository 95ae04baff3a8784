"""`--forks N`: every test runs once, in a process that did not collect it, and a lost process is a failure."""

import os
import re
import shutil
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
TESTS = """
import os, pytest
@pytest.fixture(scope="module", autouse=True)
def noted(tmp_path_factory):
    yield tmp_path_factory.mktemp("unused")
    with open("ended", "a") as file:
        print(os.getpid(), file=file)
@pytest.mark.parametrize("number", range(150))
def test_runs(number, tmp_path):
    with open("ran", "a") as file:
        print(number, os.getpid(), os.getppid(), file=file)
    assert number != 7, "seven"
def test_ends_its_process():
    os._exit(3)
def test_is_skipped():
    pytest.skip("why not")
"""


def test_every_test_runs_once_and_the_process_that_ends_fails_one(root, tmp_path):
    shutil.copy(root / "tests" / "forks.py", tmp_path)
    (tmp_path / "test_some.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "forks", "-p", "no:cacheprovider", "--forks", "2", "-rA"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    ran = [tuple(map(int, line.split())) for line in (tmp_path / "ran").read_text().splitlines()]
    ended = [int(line) for line in (tmp_path / "ended").read_text().splitlines()]

    assert done.returncode == 1, done.stdout + done.stderr
    assert "2 failed, 149 passed, 1 skipped" in done.stdout
    assert "AssertionError: seven" in done.stdout
    assert "The process that ran this test ended with exit code 3." in done.stdout
    assert len(re.findall(r"^PASSED ", done.stdout, re.MULTILINE)) == 149
    assert sorted(number for number, *_ in ran) == list(range(150))
    processes = {process for _, process, _ in ran}
    assert len(processes) >= 2
    assert len({parent for *_, parent in ran}) == 1
    assert len(ended) == len(set(ended))


def test_the_first_failure_ends_all_if_it_should(root, tmp_path):
    shutil.copy(root / "tests" / "forks.py", tmp_path)
    (tmp_path / "test_some.py").write_text("def test_fails(): assert False\n" + TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "forks", "-p", "no:cacheprovider", "--forks", "2"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)

    assert done.returncode == 1
    assert "stopping after 1 failures" in done.stdout
