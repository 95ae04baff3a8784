"""A configuration that hangs, crashes or loses its device does so in another process, and never serves."""

import importlib
import os
import signal
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from kernels.dispatch.registry import Choice
from tuner.measure.attempts import Attempts
from tuner.outcome import LIVES, DeviceHung, Kind, poisons
from tuner.search.results import Results
from tuner.triton import isolation
from tuner.triton.case import Launch
from tuner.triton.configurations import listed
from tuner.triton.isolation import HERE, Isolation, NoChild, finished, forked, imported_as

triton = pytest.importorskip("triton")

from scaled_kernel import Pretended, allowed, call, tuned  # noqa: E402, F401

pytestmark = pytest.mark.skipif(not isolation.can_fork(), reason="this system has no forks")
PLAIN = {"num_warps": 4, "num_stages": 3, "num_ctas": 1}
FAST = 2.0  # seconds of the limit, on a busy machine


def failures(tmp_path, kernel):
    return {row.failure: row.message for row in Results(tmp_path / "kernels").rows(kernel.name) if row.failure}


def sleeps(arguments):
    time.sleep(600)


HANGS = triton.Config({"BLOCK": 32}, pre_hook=sleeps)


@pytest.mark.parametrize("check", [True, False], ids=["checked", "unchecked"])
def test_an_endless_loop_hangs_nothing_and_is_recorded(tmp_path, check):
    configs = [{"BLOCK": 64}, {"BLOCK": 32, "FAULT": "endless"} if check else HANGS, {"BLOCK": 16}]
    kernel = tuned(tmp_path, configs=configs, limit=FAST, check=check, clock=Pretended({64: 2.0, 32: 0.5, 16: 1.0}))

    call(kernel)

    assert kernel.best_config.kwargs == {"BLOCK": 16}
    assert failures(tmp_path, kernel) == {"timed_out": "it did not end within 2 s"}


def test_if_every_configuration_hangs_the_error_says_so(tmp_path):
    kernel = tuned(tmp_path, configs=[HANGS, {"BLOCK": 48}], limit=FAST)

    said = r"no configuration of it runs. The first one: it did not end within 2 s. 2 of 2 were tried. If it is slow"
    with pytest.raises(RuntimeError, match=said):
        call(kernel)


def test_a_check_that_the_system_kills_for_memory_makes_no_call_fail(tmp_path):
    """The call alone needs less memory than its check."""
    ours = os.getpid()

    def killed(arguments):
        if os.getpid() != ours:
            os.kill(os.getpid(), signal.SIGKILL)

    kernel = tuned(tmp_path, configs=[triton.Config({"BLOCK": block}, pre_hook=killed) for block in (16, 32)])
    with pytest.warns(RuntimeWarning, match="the first one was killed: its process ended: SIGKILL"):
        call(kernel)
    assert kernel.best_config.kwargs == {"BLOCK": 16}


def test_a_crash_and_a_lost_device_end_another_process(tmp_path):
    ours = os.getpid()

    def dies(arguments):
        assert os.getpid() != ours
        os.kill(os.getpid(), signal.SIGSEGV)

    def loses(arguments):
        assert os.getpid() != ours
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    def is_killed(arguments):
        assert os.getpid() != ours
        os.kill(os.getpid(), signal.SIGKILL)

    hooks = {64: None, 32: dies, 16: loses, 128: is_killed}
    configs = [triton.Config({"BLOCK": block}, pre_hook=hook) for block, hook in hooks.items()]
    kernel = tuned(tmp_path, configs=configs)

    call(kernel)

    assert kernel.best_config.kwargs == {"BLOCK": 64}
    found = [row.message for row in Results(tmp_path / "kernels").rows(kernel.name) if row.failure == "crashed"]
    assert found[0].startswith("its process ended: SIGSEGV. Fatal Python error: Segmentation fault")
    assert "illegal memory access" in found[1]
    assert failures(tmp_path, kernel)["killed"] == "its process ended: SIGKILL"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_process_that_is_killed_from_outside_says_nothing_about_a_configuration(tmp_path, number):
    file, ours = tmp_path / "deaths", os.getpid()

    def is_killed(arguments):
        deaths = len(file.read_text()) if file.exists() else 0
        if os.getpid() != ours and deaths < LIVES - 1:
            file.write_text("x" * (deaths + 1))
            os.kill(os.getpid(), number)

    configs = [triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 32}, pre_hook=is_killed)]
    kernel = tuned(tmp_path, configs=configs, clock=Pretended({64: 2.0, 32: 0.5}))

    call(kernel)

    assert kernel.best_config.kwargs == {"BLOCK": 32}
    assert failures(tmp_path, kernel) == {}


def test_a_compiler_that_is_killed_from_outside_compiles_again(tmp_path):
    file = tmp_path / "deaths"

    def compile(choice):
        with file.open("a") as opened:
            opened.write("x")
        if len(file.read_text()) < LIVES:
            os.kill(os.getpid(), signal.SIGKILL)

    one, other = Choice.of("triton", {"BLOCK": 16}), Choice.of("triton", {"BLOCK": 32})
    ahead = forked(compile)
    try:
        ahead.add([one, other])
        assert [ahead.answer(each, 10 * FAST).ended for each in (one, other)] == [None, None]
    finally:
        ahead.close()
    assert file.read_text() == "x" * (LIVES + 1)


def test_what_a_child_writes_stays_there(tmp_path):
    seen = []
    hook = triton.Config({"BLOCK": 64}, pre_hook=lambda arguments: seen.append(os.getpid()))
    kernel = tuned(tmp_path, configs=[hook, {"BLOCK": 32, "FAULT": "wrong"}])

    call(kernel)

    assert set(seen) == {os.getpid()}
    assert kernel.best_config.kwargs == {"BLOCK": 64}


def test_without_processes_the_default_serves_with_a_warning(tmp_path, monkeypatch):
    def fails():
        raise BlockingIOError("Resource temporarily unavailable")

    kernel = tuned(tmp_path)
    monkeypatch.setattr(os, "fork", fails)
    with pytest.warns(RuntimeWarning, match="no process can be started to try it in: Resource temporarily"):
        call(kernel)
    assert kernel.best_config.kwargs == {"BLOCK": 16}


def test_a_compilation_that_hangs_blames_its_configuration_alone(tmp_path, monkeypatch):
    kernel = tuned(tmp_path)
    arguments = (torch.arange(16.0), torch.zeros(16), 16, 1.5)
    launch = Launch(kernel.fn, arguments, {}, (1,), dict(zip(kernel.arg_names, arguments)))
    case = kernel._case(launch)
    slow, *others = case.choices

    def compile(choice):
        time.sleep(600 if choice == slow else 0)

    found = Isolation(case, launch, FAST, lambda choice: None, lambda config: None)
    found.compiling = [forked(compile) for _ in range(2)]
    try:
        found.compile(case.choices)
        assert [found.tried(each).ended for each in others] == [None] * 3
        hung = found.tried(slow).ended
    finally:
        found.close()
    assert (hung.kind, hung.message) == (Kind.TIMED_OUT, "compilation: it did not end within 2 s")
    assert all(each.child is None for each in found.compiling)


MODULE = """
import triton
from triton import language as tl


@triton.jit
def fill(x_ptr, value, BLOCK: tl.constexpr):
    while value < 0:
        value = value - 1
    tl.store(x_ptr + tl.arange(0, BLOCK), value)
"""


def test_a_new_process_imports_the_kernel_and_gets_copies_of_its_arguments(tmp_path, monkeypatch):
    (tmp_path / "kernel_to_import.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    kernel = importlib.import_module("kernel_to_import").fill
    assert imported_as(kernel) == ("kernel_to_import", "fill")
    assert imported_as(SimpleNamespace(fn=lambda x: x)) is None
    x = torch.zeros(32)

    monkeypatch.setattr(isolation, "can_fork", lambda: False)
    choices = listed([triton.Config({"BLOCK": block}) for block in (16, 32)])

    def first(value):
        launch = Launch(kernel, (x, value), {}, (1,), {"x_ptr": x, "value": value})
        case = SimpleNamespace(where="cpu", choices=choices)
        return Isolation(case, launch, FAST, lambda choice: None, lambda config: None)

    runs, endless = first(1.0), first(-1.0)
    try:
        assert [runs.tried(each).ended for each in choices] == [None, None]
        assert endless.tried(choices[0]).ended.kind is Kind.TIMED_OUT
    finally:
        runs.close()
        endless.close()
    assert not x.any()


def test_without_forks_a_new_process_runs_each_configuration_first(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parent)  # there the new process finds the kernel
    monkeypatch.setattr(isolation, "can_fork", lambda: False)
    configs = [{"BLOCK": 64}, {"BLOCK": 32, "FAULT": "endless"}, {"BLOCK": 48}, {"BLOCK": 16}]
    kernel = tuned(tmp_path, configs=configs, limit=FAST, clock=Pretended({64: 2.0, 32: 0.5, 16: 1.0}))

    call(kernel)

    (decision,) = kernel.decisions.values()
    assert decision.choice.configuration == Choice.of("triton", {**configs[3], **PLAIN}).configuration
    assert sorted(failures(tmp_path, kernel)) in (["build_error", "timed_out"], ["crashed", "timed_out"])
    assert imported_as(kernel.fn) == ("scaled_kernel", "scale")


def test_a_kernel_that_another_process_cannot_import_runs_first_in_this_one(tmp_path, monkeypatch):
    kernel = tuned(tmp_path)
    arguments = (torch.arange(16.0), torch.zeros(16), 16, 1.5)
    launch = Launch(kernel.fn, arguments, {}, (1,), dict(zip(kernel.arg_names, arguments)))
    case = kernel._case(launch)

    def fails():
        raise OSError("a new process that imports scaled_kernel does not start: exit code 1")

    found = Isolation(case, launch, FAST, lambda choice: None, lambda config: None)
    found.first_runs, found.is_check = Attempts(fails), False
    assert found.tried(case.default) == found.tried(case.default) == HERE
    found.first_runs, found.is_check = Attempts(fails), True
    with pytest.raises(NoChild, match="does not start"):
        found.tried(case.default)


def test_the_watchdog_ends_the_wait_for_a_gpu_that_hangs(monkeypatch):
    class Event:
        def __init__(self):
            self.asked = 0

        def record(self):
            pass

        def query(self):
            self.asked += 1
            return ends and self.asked > 3

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    on_a_gpu = SimpleNamespace(device=torch.device("cuda:1"), is_cuda=True)
    ends = True
    finished([on_a_gpu, torch.zeros(1)], 60.0)
    ends = False
    with pytest.raises(DeviceHung, match=r"did not end within 0.01 s, and nothing can stop it on cuda:1") as told:
        finished([on_a_gpu], 0.01)
    assert poisons(told.value)
