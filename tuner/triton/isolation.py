"""Compiles each configuration of a call, and runs it for the first time, where it cannot hang or crash this process.

On a CPU, which is where Triton's interpreter runs, the child is a fork of this process and makes the whole check. A
fork cannot use a GPU: forks only compile for it, several at once, and Triton finds on disk what they compiled. The
first run is in a new process, which imports the kernel by its name and gets copies of the arguments. A kernel of a
script, or of an interactive session, cannot be imported; then a watchdog ends the wait for a run that hangs.
"""

from __future__ import annotations

import importlib
import io
import os
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch import Tensor

from kernels.dispatch.registry import Choice
from nas.child import Child, Died, Late, can_fork
from tuner.measure.attempts import Answer, Attempts, NoChild, serve
from tuner.measure.children import METHOD, PRELOAD
from tuner.measure.precompile import Elsewhere
from tuner.outcome import DeviceHung, Outcome
from tuner.triton.case import Case, Launch
from tuner.triton.configurations import interpreted
from tuner.triton.copies import has_room, tensors
from tuner.triton.source import function_of

LONGEST = 60.0  # seconds of a run on a GPU
START = 120.0  # seconds that a new process may take to import the kernel's module
COMPILING = 8  # processes, at most
CONTEXT = 2**30  # bytes of a GPU that another process needs for itself
LARGEST = 4 * 2**30  # bytes of arguments that are sent to another process
FIRST, LAST = 1e-5, 1e-2  # seconds between two looks at a GPU


HERE = Answer(raised=True)  # what comes of it is seen in this process


def forked(work: Callable[[Any], Any]) -> Attempts:
    """Attempts in a fork of this process, which has a copy of everything that the work needs; what it changes stays
    there. It cannot use a GPU."""
    return Attempts(partial(Child, _works, work, method="fork", quiet=True))


def _works(parent: Connection, work: Callable[[Any], Any]) -> None:
    torch.set_num_threads(1)  # the threads of the pool are not in this process
    serve(parent, work)


def importing(name: tuple[str, str], where: str) -> Child:
    """A new process that runs the kernel called `name`. Raises OSError if it does not start, or cannot import it."""
    child = Child(run_kernels, name, where, method=METHOD, preload=PRELOAD, quiet=True)
    try:
        child.receive(time.monotonic() + START)
    except (Late, Died) as error:
        child.kill()
        raise OSError(f"a new process that imports {name[0]} does not start: {error}") from error
    return child


def run_kernels(parent: Connection, name: tuple[str, str], where: str) -> None:
    """The whole life of a new process: run the kernel with the settings that are sent."""
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

    parent.send(True)
    serve(parent, work)


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
        self.first_runs = forked(work) if self.is_check else self._in_a_new_process()
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
            return Attempts(partial(importing, name, self.case.where), message)
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
    return [forked(compile) for _ in range(count)]


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
