"""Compilers that work ahead: each choice once, in order, none on a CPU, and nothing is lost with one of them."""

import os
import time
from pathlib import Path

import pytest

from kernels.dispatch.registry import Choice, Problem
from tuner.measure.ahead import Ahead, compilers, compiles, only_compiling
from tuner.measure.worker import Settings

CHOICES = [Choice.of("triton", {"block": block}) for block in (16, 32, 64)]


def problem(folder):
    """A fake compiler is told by the problem where to write."""
    return Problem(str(folder), "cpu", "float32", ())


def write(problem, choice):
    file = Path(problem.operation, str(dict(choice.configuration)["block"]))
    assert not file.exists()
    file.write_text(str(os.getpid()))


def die(problem, choice):
    os._exit(1)


def wait(folder, count, seconds=60.0):
    end = time.monotonic() + seconds
    while len(list(folder.iterdir())) < count and time.monotonic() < end:
        time.sleep(0.01)
    return sorted(int(path.name) for path in folder.iterdir())


def test_what_comes_next_is_compiled_once_in_other_processes(tmp_path):
    with Ahead(Settings(), processes=1, compile=write) as ahead:
        for _ in range(3):
            ahead.compile_next(problem(tmp_path), CHOICES)
        assert wait(tmp_path, 2) == [16, 32]  # for more there was no room at first
        while any(not each.done() for each in ahead.running):
            time.sleep(0.01)
        ahead.compile_next(problem(tmp_path), CHOICES)
        assert wait(tmp_path, 3) == [16, 32, 64]
    assert {path.read_text() for path in tmp_path.iterdir()} != {str(os.getpid())}


def test_where_a_compiler_dies_the_session_goes_on_without(tmp_path):
    with Ahead(Settings(), processes=1, compile=die) as ahead:
        ahead.compile_next(problem(tmp_path), CHOICES[:1])
        assert ahead.running[0].exception(60) is not None
        ahead.compile_next(problem(tmp_path), CHOICES)
        assert ahead.processes == 0
        ahead.compile_next(problem(tmp_path), CHOICES)


def test_nobody_compiles_ahead_on_a_cpu(tmp_path):
    assert compilers("cpu") == 0
    with Ahead(Settings()) as ahead:
        ahead.compile_next(problem(tmp_path), CHOICES)
        assert ahead.pool is None


def test_only_what_triton_compiles_is_worth_it():
    assert compiles(("kernels.rowwise.rows", "kernels.rowwise.rms_norm_triton"))
    assert not compiles(("kernels.attention.blocked",))


def test_a_launch_becomes_a_compilation(monkeypatch):
    jit = pytest.importorskip("triton.runtime.jit")
    launched = []
    monkeypatch.setattr(jit.JITFunction, "run", lambda self, *args, grid, warmup: launched.append((args, grid, warmup)))
    with only_compiling():
        jit.JITFunction.run(None, 1, grid=(2,), warmup=False)
    jit.JITFunction.run(None, 1, grid=(2,), warmup=False)

    assert launched == [((1,), (2,), True), ((1,), (2,), False)]
