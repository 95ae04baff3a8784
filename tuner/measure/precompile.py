"""Processes that compile in advance: while the device measures one configuration, others compile the next ones.

Triton keeps compiled kernels on disk, under a hash of the source, the settings and the device, so the child process
that measures finds them there. A compiling process calls the implementation on tensors of the CPU, with Triton's
launches replaced by their compilation. It knows the GPU only as the target of the compiler, so it uses none of its
memory and does not disturb what is timed. On a CPU nothing is compiled while something is timed; what needs a C++
compiler is built in batches, on all cores, and the measuring child finds it in PyTorch's cache. Nothing depends on
these processes: what one of them cannot compile, or not in time, the measuring child compiles for itself.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from multiprocessing.connection import Connection
from typing import Any

import torch

from kernels.dispatch import tuned
from kernels.dispatch.device import resolve
from kernels.dispatch.registry import Choice, Problem, operation
from nas.child import Child
from tuner.measure.attempts import Attempts, NoChild, serve
from tuner.measure.children import METHOD, PRELOAD
from tuner.measure.worker import Settings, leave_tracker, load
from tuner.outcome import Kind

MOST = 8  # processes
WAITING = 2  # choices that may wait for each process; more might never be needed


@dataclass(frozen=True)
class Elsewhere:
    """What Triton asks of a driver when it compiles without launching. target: the GPU to compile for. number: of that
    GPU, because Triton keeps what it compiled by the number of the device."""

    target: Any
    number: int

    def get_current_target(self) -> Any:
        return self.target

    def get_current_device(self) -> int:
        return self.number

    def get_current_stream(self, device: int) -> int:
        return 0


Compile = Callable[[Problem, Choice, Elsewhere | None], None]


class Precompiler:
    """Processes that compile. Close it, or use `with`."""

    def __init__(self, settings: Settings, processes: int | None = None, compile: Compile | None = None) -> None:
        count = default_processes(settings.device) if processes is None else processes
        away = elsewhere(settings.device) if count and settings.device != "cpu" else None
        start = partial(
            Child, _compiles, settings, compile or compile_choice, away, method=METHOD, preload=PRELOAD, quiet=True
        )
        self.processes = [Attempts(start) for _ in range(count)]
        self.submitted: set[tuple[Problem, Choice]] = set()

    def __enter__(self) -> Precompiler:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def compile_next(self, problem: Problem, choices: Iterable[Choice]) -> None:
        """Submit the first of `choices` that were never submitted, as many as the processes can take."""
        for process in self.processes:
            process.collect()
        for choice in choices:
            least = min(self.processes, key=lambda each: len(each.waiting), default=None)
            if least is None or len(least.waiting) >= WAITING:
                return
            if (problem, choice) not in self.submitted:
                self.submitted.add((problem, choice))
                try:
                    least.add([(problem, choice)])
                except NoChild:
                    self.processes.remove(least)

    @property
    def most(self) -> int:
        """How many choices are compiled or wait at a time."""
        return WAITING * len(self.processes)

    def wait(self, seconds: float) -> set[tuple[Problem, Choice]]:
        """Wait until nothing compiles -> the choices that take too long. Their processes are ended, and they are not
        compiled in advance again.
        """
        until, late = time.monotonic() + seconds, set()
        for process in self.processes:
            while process.waiting:
                item = process.waiting[0]
                ended = process.answer(item, max(until - time.monotonic(), 0.0)).ended
                if ended is not None and ended.kind is Kind.TIMED_OUT:
                    late |= {item, *process.waiting}
                    process.waiting.clear()
        return late

    def close(self) -> None:
        """End all processes, without waiting for what they compile."""
        for process in self.processes:
            process.close()


def default_processes(device: str) -> int:
    """How many processes compile: half of the cores for a GPU; none for a CPU, whose cores are being measured."""
    return 0 if device == "cpu" else min(MOST, cores() // 2)


def building_processes(device: str) -> int:
    """How many processes build for a CPU while nothing is timed; none for a GPU, which a build would use."""
    return min(MOST, cores()) if device == "cpu" else 0


def cores() -> int:
    """How many cores this process may use: several builds on one core would exceed the time to wait for them."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _compiles(parent: Connection, settings: Settings, compile: Compile, elsewhere: Elsewhere | None) -> None:
    """The whole life of a compiling process: it sees no GPU, has the number of threads that code for a CPU depends on,
    and loads the files that register operations."""
    leave_tracker()
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"):
        os.environ[name] = ""
    for path in settings.load:
        load(path)

    def work(item: tuple[Problem, Choice]) -> None:
        compile(*item, elsewhere)

    serve(parent, work)


def elsewhere(device: str) -> Elsewhere:
    """A GPU of this machine as a target. Raises ValueError if the machine does not have it."""
    from triton.backends.compiler import GPUTarget

    index = resolve(device).index or 0
    known = torch.cuda.get_device_properties(index)
    if torch.version.hip:
        return Elsewhere(GPUTarget("hip", known.gcnArchName.partition(":")[0], known.warp_size), index)
    return Elsewhere(GPUTarget("cuda", 10 * known.major + known.minor, 32), index)


def compile_choice(problem: Problem, choice: Choice, elsewhere: Elsewhere | None) -> None:
    """Compile what `choice` launches for `problem`, forward and backward. Raises what the compiler raises."""
    from triton.runtime import driver

    from tuner.measure.correctness import call_forward_and_backward

    found = operation(problem.operation)
    if elsewhere is not None:
        driver.set_active(elsewhere)
    with only_compiling():
        call_forward_and_backward(found, replace(problem, device="cpu"), tuned.bound(found, choice))


def build_choice(problem: Problem, choice: Choice, elsewhere: Elsewhere | None) -> None:
    """Run `choice` once, forward and backward, so that what `torch.compile` makes of it is in PyTorch's cache.

    Raises what the compiler raises.
    """
    from tuner.measure.correctness import call_forward_and_backward

    found = operation(problem.operation)
    config: Any = import_module("torch._inductor.config")
    config.compile_threads = 1  # there is a process for each core
    call_forward_and_backward(found, problem, tuned.bound(found, choice))


@contextmanager
def only_compiling() -> Iterator[None]:
    """Inside the block a launch of a Triton kernel compiles it, but does not run it."""
    from triton.runtime.jit import JITFunction

    original = JITFunction.run

    def run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        return original(self, *args, grid=grid, warmup=True, **kwargs)

    JITFunction.run = run
    try:
        yield
    finally:
        JITFunction.run = original
