"""Precompilation: each choice once, in order, never for a CPU; if a process dies, nothing is lost."""

import os
import subprocess
import sys
import time
from multiprocessing import get_context
from pathlib import Path

import pytest

from kernels.dispatch.registry import Choice, Problem, operation
from tests.conftest import QUICK
from tuner.measure.precompile import Precompiler, building_processes, default_processes, only_compiling
from tuner.measure.worker import Settings

CHOICES = [Choice.of("triton", {"block": block}) for block in (16, 32, 64)]


def problem(folder):
    """A fake compiler is told by the problem where to write."""
    return Problem(str(folder), "cpu", "float32", ())


def write(problem, choice, elsewhere):
    file = Path(problem.operation, str(dict(choice.configuration)["block"]))
    assert not file.exists()
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "", "no GPU can be used here"
    file.write_text(str(os.getpid()))


def lock_and_hang(problem, choice, elsewhere):
    lock = get_context("spawn").RLock()  # as tqdm has, which compilers import
    Path(problem.operation, "locked").touch()
    with lock:
        time.sleep(600)


def wait(folder, count, seconds=60.0):
    end = time.monotonic() + seconds
    while len(list(folder.iterdir())) < count and time.monotonic() < end:
        time.sleep(0.01)
    return sorted(int(path.name) for path in folder.iterdir())


def test_the_next_choices_are_compiled_once_in_other_processes(tmp_path):
    with Precompiler(Settings(), processes=1, compile=write) as precompiler:
        for _ in range(3):
            precompiler.compile_next(problem(tmp_path), CHOICES)
        assert wait(tmp_path, 2) == [16, 32]  # the pool takes no more at first
        assert precompiler.wait(60.0) == set()
        precompiler.compile_next(problem(tmp_path), CHOICES)
        assert wait(tmp_path, 3) == [16, 32, 64]
    assert {path.read_text() for path in tmp_path.iterdir()} != {str(os.getpid())}


def die_or_hang(problem, choice, elsewhere):
    if choice == CHOICES[0]:
        os._exit(1)
    if choice == CHOICES[1]:
        time.sleep(600)
    write(problem, choice, elsewhere)


def test_after_a_process_that_dies_or_hangs_another_compiles_what_comes_next(tmp_path):
    with Precompiler(Settings(), processes=1, compile=die_or_hang) as precompiler:
        precompiler.compile_next(problem(tmp_path), CHOICES[:1])
        assert precompiler.wait(60.0) == set(), "it has ended"
        precompiler.compile_next(problem(tmp_path), CHOICES[:2])
        assert precompiler.wait(0.5) == {(problem(tmp_path), CHOICES[1])}
        precompiler.compile_next(problem(tmp_path), CHOICES)
        assert wait(tmp_path, 1) == [64], "each is submitted once"


def test_if_no_process_can_be_started_nothing_is_compiled_in_advance(tmp_path, monkeypatch):
    def fail(*args, **options):
        raise OSError("no more processes")

    monkeypatch.setattr("tuner.measure.precompile.Child", fail)
    with Precompiler(Settings(), processes=1, compile=write) as precompiler:
        precompiler.compile_next(problem(tmp_path), CHOICES)
        assert (precompiler.processes, precompiler.most) == ([], 0)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="only Linux binds a process to cores")
def test_builds_take_no_more_processes_than_the_cores_they_may_use():
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        assert building_processes("cpu") == 1
    finally:
        os.sched_setaffinity(0, before)
    assert building_processes("cuda") == 0


def test_nothing_is_precompiled_for_a_cpu(tmp_path):
    assert default_processes("cpu") == 0
    with Precompiler(Settings()) as precompiler:
        precompiler.compile_next(problem(tmp_path), CHOICES)
        assert precompiler.processes == []


def test_only_implementations_with_triton_files_are_compiled():
    known = operation("rms_norm").implementations
    assert known["triton"].is_triton and not known["blocked"].is_triton


def test_a_launch_becomes_a_compilation(monkeypatch):
    jit = pytest.importorskip("triton.runtime.jit")
    launched = []
    monkeypatch.setattr(jit.JITFunction, "run", lambda self, *args, grid, warmup: launched.append((args, grid, warmup)))
    with only_compiling():
        jit.JITFunction.run(None, 1, grid=(2,), warmup=False)
    jit.JITFunction.run(None, 1, grid=(2,), warmup=False)

    assert launched == [((1,), (2,), True), ((1,), (2,), False)]


KILLED = """
import time

from test_precompile import CHOICES, Path, Precompiler, Settings, lock_and_hang, problem

folder = Path({folder!r})
with Precompiler(Settings(), processes=1, compile=lock_and_hang) as precompiler:
    precompiler.compile_next(problem(folder), CHOICES[:1])
    while not Path(folder, "locked").exists():
        time.sleep(0.01)
"""


def test_a_compiler_that_is_killed_leaves_no_message(tmp_path, root):
    paths = os.pathsep.join([str(root), str(Path(__file__).parent)])
    script = [sys.executable, "-c", QUICK + KILLED.format(folder=str(tmp_path))]
    done = subprocess.run(script, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
