"""Compilers that work ahead: while the device measures one configuration, other processes compile the next.

Triton keeps on disk what it compiled, by a hash of the source, the settings and the device: the child that measures
finds it there. A process of the pool calls the implementation with Triton's launches replaced by their compilation, so
that it computes nothing of note on the device. Nothing depends on it: one that dies or hangs leaves the compiling to
the child.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from typing import Any

from kernels.dispatch import tuned
from kernels.dispatch.registry import Choice, Problem, operation
from tuner.measure.children import context, without_main
from tuner.measure.worker import Settings, load

MOST = 8  # processes: each holds a context of the device
ROOM = 2  # choices that wait for each of them; more might never be asked for

Compile = Callable[[Problem, Choice], None]


class Ahead:
    """A pool of compilers. Close it, or use `with`."""

    def __init__(self, settings: Settings, processes: int | None = None, compile: Compile | None = None) -> None:
        self.processes = compilers(settings.device) if processes is None else processes
        self.compile, self.settings = compile or compile_choice, settings
        self.asked: set[tuple[Problem, Choice]] = set()
        self.running: list[Future] = []
        self.pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Ahead:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def compile_next(self, problem: Problem, choices: Iterable[Choice]) -> None:
        """Begin with those of `choices`, in their order, that were never asked for and that there is room for."""
        if not self.processes:
            return
        self.running = [each for each in self.running if not each.done()]
        for choice in choices:
            if len(self.running) >= ROOM * self.processes:
                return
            if (problem, choice) not in self.asked:
                self.asked.add((problem, choice))
                self._begin(problem, choice)

    def _begin(self, problem: Problem, choice: Choice) -> None:
        try:
            if self.pool is None:
                self.pool = ProcessPoolExecutor(
                    self.processes, context(), initializer=prepare, initargs=(self.settings.load,)
                )
            with without_main():
                self.running.append(self.pool.submit(self.compile, problem, choice))
        except BrokenProcessPool:
            self.processes = 0  # one was killed: the child compiles for itself from now on

    def close(self) -> None:
        """End it; what is being compiled is not waited for."""
        if self.pool is None:
            return
        processes = list((self.pool._processes or {}).values())
        self.pool.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            with suppress(ProcessLookupError, ValueError):
                process.kill()
        self.pool = None


def compilers(device: str) -> int:
    """How many work ahead: half of the cores beside a GPU; none on a CPU, whose cores are what is measured."""
    return 0 if device == "cpu" else min(MOST, (os.cpu_count() or 1) // 2)


def compiles(files: Iterable[str]) -> bool:
    """Whether an implementation of these files is compiled by Triton when it is called."""
    return any(name.endswith("_triton") for name in files)


def prepare(files: tuple[str, ...]) -> None:
    """What a process of the pool begins with."""
    for path in files:
        load(path)


def compile_choice(problem: Problem, choice: Choice) -> None:
    """Compile what `choice` launches for `problem`, forward and backward."""
    from tuner.measure.gate import compile_both

    found = operation(problem.operation)
    with only_compiling():
        compile_both(found, problem, tuned.bound(found, choice))


@contextmanager
def only_compiling() -> Iterator[None]:
    """Inside it a launch of a Triton kernel compiles it, and runs nothing."""
    from triton.runtime.jit import JITFunction

    whole = JITFunction.run

    def run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        return whole(self, *args, grid=grid, warmup=True, **kwargs)

    JITFunction.run = run
    try:
        yield
    finally:
        JITFunction.run = whole
