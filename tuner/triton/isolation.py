"""Compiles each configuration of a call, and runs it for the first time, where it cannot hang or crash this process.

A child does one piece of work after the other and sends an answer after each. If an answer does not come in time, or
the child dies, that piece of work is to blame, and a new child continues with the next one. A child that was killed
from outside says nothing about the work: it is tried again, a few times.

On a CPU, which is where Triton's interpreter runs, the child is a fork of this process and makes the whole check. A
fork cannot use a GPU: forks only compile for it, several at once, and Triton finds on disk what they compiled. The
first run is in a new process, which imports the kernel by its name and gets copies of the arguments. A kernel of a
script, or of an interactive session, cannot be imported; then a watchdog ends the wait for a run that hangs.
"""

from __future__ import annotations

import ctypes
import faulthandler
import importlib
import io
import multiprocessing
import os
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, Protocol

import torch
from torch import Tensor

from kernels.dispatch.registry import Choice
from tuner.measure.children import context, without_main
from tuner.measure.precompile import Elsewhere
from tuner.outcome import LIVES, DeviceHung, Kind, Outcome, is_from_outside, of_death, of_exception, poisons
from tuner.triton.case import Case, Launch
from tuner.triton.configurations import interpreted
from tuner.triton.copies import has_room, tensors
from tuner.triton.source import function_of

LONGEST = 60.0  # seconds of a run on a GPU
START = 120.0  # seconds that a new process may take to import the kernel's module
GONE = 5.0  # seconds to wait for the end of a process that was killed
COMPILING = 8  # processes, at most
CONTEXT = 2**30  # bytes of a GPU that another process needs for itself
LARGEST = 4 * 2**30  # bytes of arguments that are sent to another process
FIRST, LAST = 1e-5, 1e-2  # seconds between two looks at a GPU
Work = Callable[[Any], Any]


class NoChild(Exception):
    """No child process can be started."""


@dataclass(frozen=True)
class Answer:
    """value: what the work returned. raised: it raised an error, which it will raise here too. ended: how it hung,
    crashed, or lost its device; None if it did not."""

    value: Any = None
    raised: bool = False
    ended: Outcome | None = None


HERE = Answer(raised=True)  # what comes of it is seen in this process


class Child(Protocol):
    """A process that runs `serve` at the other end of the pipe."""

    pipe: Connection

    def end(self) -> int | None:
        """Kill it; returns its exit code, negative for a signal: how it ended, if it had ended before."""


class Attempts:
    """Tries pieces of work in their order. start: starts a child. message: what to send for a piece of work, and
    whether it is the first for this child. Close this object when it is no longer needed."""

    def __init__(
        self, start: Callable[[], Child], message: Callable[[Any, bool], Any] = lambda item, first: item
    ) -> None:
        self.start, self.message = start, message
        self.child: Child | None = None
        self.waiting: list[Any] = []
        self.answers: dict[Hashable, Answer] = {}
        self.killed: Counter[Hashable] = Counter()  # children that were killed from outside, by their piece of work

    def add(self, items: Iterable[Any]) -> None:
        """Send pieces of work that were not sent before. Raises NoChild if no child can be started."""
        new = [each for each in items if each not in self.answers and each not in self.waiting]
        self.waiting += new
        if self.child is not None:
            self._send(self.child, new, False)
        elif new:
            self._begin()

    def answer(self, item: Any, limit: float) -> Answer:
        """What came of `item`; each piece of work may take `limit` seconds. Raises NoChild as `add`."""
        self.add([item])
        while item not in self.answers:
            self._receive(self.child or self._begin(), limit)
        return self.answers[item]

    def close(self) -> None:
        """End the child."""
        if self.child is not None:
            self.child.end()
            self.child = None

    def _begin(self) -> Child:
        try:
            self.child = self.start()
        except OSError as error:
            self.waiting.clear()
            raise NoChild(f"no process can be started to try it in: {error}") from error
        self._send(self.child, self.waiting, True)
        return self.child

    def _send(self, child: Child, items: Iterable[Any], first: bool) -> None:
        with suppress(OSError):  # a child that has ended is seen when its answer is read
            for each in items:
                child.pipe.send(self.message(each, first))
                first = False

    def _receive(self, child: Child, limit: float) -> None:
        """Read the answer to the first piece of work that waits."""
        item = self.waiting[0]
        try:
            if child.pipe.poll(limit):
                self.answers[item] = child.pipe.recv()
            else:
                ended = Outcome(Kind.TIMED_OUT, message=f"it did not end within {limit:.3g} s", seconds=limit)
                self.answers[item] = Answer(ended=ended)
        except (EOFError, OSError):
            code, self.child = child.end(), None
            self.killed[item] += is_from_outside(code)
            if 0 < self.killed[item] < LIVES and is_from_outside(code):
                return  # try it again
            self.answers[item] = Answer(ended=of_death(code))
        self.waiting.pop(0)
        if self.answers[item].ended is not None:
            self.close()


def serve(pipe: Connection, work: Work) -> None:
    """The loop of a child: answer until the other end of the pipe is closed."""
    with suppress(EOFError, OSError):
        while True:
            item = pipe.recv()
            try:
                found = Answer(work(item))
            except BaseException as error:
                found = Answer(raised=True, ended=of_exception(error) if poisons(error) else None)
            pipe.send(found)


class Forked:
    """A fork of this process that does `work`. Raises OSError if the system allows no more processes."""

    def __init__(self, work: Work) -> None:
        self.pipe, theirs = multiprocessing.Pipe()
        with warnings.catch_warnings():
            # A lock that another thread holds may stay locked in the child, which then hangs and is killed.
            warnings.simplefilter("ignore", DeprecationWarning)
            try:
                self.process = os.fork()
            except OSError:
                self.pipe.close()
                theirs.close()
                raise
        if not self.process:
            try:
                self.pipe.close()
                quiet()
                torch.set_num_threads(1)  # the threads of the pool are not in this process
                serve(theirs, work)
            finally:
                os._exit(0)
        theirs.close()

    def end(self) -> int | None:
        self.pipe.close()
        with suppress(ProcessLookupError):
            os.kill(self.process, signal.SIGKILL)  # has no effect on one that has ended
        try:
            _, status = os.waitpid(self.process, 0)
        except ChildProcessError:  # the program has asked for it
            return None
        return os.waitstatus_to_exitcode(status)


class NewProcess:
    """A new process that runs the kernel called `name`. Raises OSError if it does not start, or cannot import it."""

    def __init__(self, name: tuple[str, str], where: str) -> None:
        ours = context()
        self.pipe, theirs = ours.Pipe()
        self.process = ours.Process(target=run_kernels, args=(theirs, name, where), daemon=True)
        try:
            with without_main():
                self.process.start()
        except (AssertionError, RuntimeError) as error:  # this process may not have children
            raise OSError(str(error)) from error
        theirs.close()
        try:
            ready = self.pipe.poll(START) and self.pipe.recv()
        except EOFError:
            ready = False
        if not ready:
            raise OSError(f"a new process that imports {name[0]} does not start: {of_death(self.end()).message}")

    def end(self) -> int | None:
        self.pipe.close()
        self.process.join(0.1)
        code = self.process.exitcode
        if code is None:
            self.process.kill()
            self.process.join(GONE)  # the driver may need long to stop its kernel; nothing waits for that
        return code


def run_kernels(pipe: Connection, name: tuple[str, str], where: str) -> None:
    """The main function of a new process: run the functions that are sent."""
    quiet()
    with suppress(Exception):
        kernel = _imported(*name)
        device, content = torch.device(where), b""
        if device.type == "cuda":
            torch.cuda.set_device(device)

        def work(message: Any) -> None:
            nonlocal content
            grid, settings, new = message
            content = content if new is None else new
            args, kwargs = torch.load(io.BytesIO(content), map_location=where, weights_only=False)
            kernel.run(*args, grid=grid, warmup=False, **kwargs, **settings)
            if device.type == "cuda":
                torch.cuda.synchronize(device)

        pipe.send(True)
        serve(pipe, work)


def quiet() -> None:
    """Keep the output of a child from the terminal, leave interrupts to the parent, and end when the parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.disable()  # it may write to a copy of the terminal
    nothing = os.open(os.devnull, os.O_RDWR)
    for each in (0, 1, 2):
        os.dup2(nothing, each)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def can_fork() -> bool:
    """Whether this system has forks that work."""
    return sys.platform == "linux" and hasattr(os, "fork")


class Isolation:
    """limit: seconds of a compilation, and of a first run. work: checks a choice, and returns the mistake or None.
    restore: sets the arguments of `launch` back, and prepares them for a configuration. is_check: whether the child
    makes the whole check and answers with its result."""

    def __init__(
        self,
        case: Case,
        launch: Launch,
        limit: float,
        work: Callable[[Choice], str | None],
        restore: Callable[[Any], None],
    ) -> None:
        self.case, self.launch, self.limit, self.restore = case, launch, limit, restore
        on_cpu = torch.device(case.where).type == "cpu"
        self.is_check = on_cpu and can_fork()
        self.first_runs = Attempts(partial(Forked, work)) if self.is_check else self._in_a_new_process()
        self.compiling: list[Attempts] = []
        self.compiled_by: dict[Choice, Attempts] = {}
        if not on_cpu and can_fork() and not interpreted(launch.kernel):
            self.compiling = compilers(launch, case.choices.config)

    def tried(self, choice: Choice) -> Answer:
        """What came of the compilation and the first run of `choice`. Raises NoChild if no process can be started."""
        if self.compiling:
            self.compile([choice])
            if choice in self.compiled_by and (ended := self.compiled_by[choice].answer(choice, self.limit).ended):
                return Answer(ended=Outcome(ended.kind, message=f"compilation: {ended.message}"))
        if self.first_runs is None:
            return HERE
        try:
            return self.first_runs.answer(choice, self.limit)
        except NoChild:
            if self.is_check:
                raise
        self.first_runs = None  # the kernel cannot be imported; a watchdog observes its runs in this process
        return HERE

    def compile(self, choices: Sequence[Choice]) -> None:
        """Compile `choices` in the background, in their order."""
        for choice in choices if self.compiling else ():
            if choice not in self.compiled_by:
                least = min(self.compiling, key=lambda each: len(each.waiting))
                with suppress(NoChild):
                    least.add([choice])
                    self.compiled_by[choice] = least

    def close(self) -> None:
        """End all child processes."""
        for each in [*self.compiling, *([] if self.first_runs is None else [self.first_runs])]:
            each.close()

    def _in_a_new_process(self) -> Attempts | None:
        """First runs in a new process; None if the kernel cannot be imported, or its arguments cannot be sent."""
        name, launch = imported_as(self.launch.kernel), self.launch
        if name is None or not _fits(launch, self.case.where):
            return None
        changes = any(each.pre_hook is not None for each in self.case.choices.configs())

        def message(choice: Choice, first: bool) -> Any:
            config = self.case.choices.config(choice)
            try:
                self.restore(config)
                return launch.grid_of(config), config.all_kwargs(), _written(launch) if first or changes else None
            except Exception:  # it will be raised in this process too
                return None

        with suppress(Exception):  # what cannot be sent
            _written(launch)
            return Attempts(partial(NewProcess, name, self.case.where), message)
        return None


def compilers(launch: Launch, config: Callable[[Choice], Any]) -> list[Attempts]:
    """Processes that compile for the current GPU; config: the triton.Config of a choice."""
    from triton.runtime import driver

    active = driver.active
    elsewhere = Elsewhere(active.get_current_target(), active.get_current_device())

    def compile(choice: Choice) -> None:
        driver.set_active(elsewhere)
        found = config(choice)
        settings = found.all_kwargs()
        if found.pre_hook is not None:
            with suppress(Exception):  # it may change the shapes of descriptors; what it does on the GPU fails here
                found.pre_hook({**launch.arguments, **settings})
        launch.kernel.run(*launch.args, grid=launch.grid, warmup=True, **launch.kwargs, **settings)

    count = max(1, min(COMPILING, (os.cpu_count() or 1) // 2))
    return [Attempts(partial(Forked, compile)) for _ in range(count)]


def imported_as(kernel: Any) -> tuple[str, str] | None:
    """The module and the name by which another process can import the kernel; None if it cannot."""
    function = function_of(kernel)
    name = function.__module__, function.__qualname__
    try:
        return name if name[0] != "__main__" and function_of(_imported(*name)) is function else None
    except (ImportError, AttributeError, TypeError):
        return None


def _imported(module: str, name: str) -> Any:
    found = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return getattr(found, "fn", found) if type(found).__name__ == "TunedKernel" else found


def _written(launch: Launch) -> bytes:
    """The arguments with the contents of their tensors. Raises what `torch.save` raises."""
    file = io.BytesIO()
    torch.save((launch.args, dict(launch.kwargs)), file)
    return file.getvalue()


def _fits(launch: Launch, where: str) -> bool:
    """Whether the tensors of a call can be sent to another process and have room there."""
    found = [tensor for _, tensor in tensors(launch.arguments)]
    size = sum(tensor.untyped_storage().nbytes() for tensor in found)
    more = size + (CONTEXT if torch.device(where).type == "cuda" else 0)
    return {str(each.device) for each in found} <= {where} and size <= LARGEST and has_room(torch.device(where), more)


def finished(some: Iterable[Tensor], limit: float) -> None:
    """Wait until the GPUs of the tensors have ended their work. Raises DeviceHung after `limit` seconds."""
    for device in {each.device for each in some if each.is_cuda}:
        with torch.cuda.device(device):
            event = torch.cuda.Event()
            event.record()
        until, pause = time.monotonic() + limit, FIRST
        while not event.query():
            if time.monotonic() > until:
                raise DeviceHung(f"the kernel did not end within {limit:.3g} s, and nothing can stop it on {device}")
            time.sleep(pause)
            pause = min(2 * pause, LAST)
