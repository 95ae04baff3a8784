"""The first run of a configuration, in a child process where possible.

On a CPU, which is where Triton's interpreter runs, the child is a fork and makes the whole check. A fork cannot use a
GPU. There the child is a new process, which imports the kernel by its name and gets copies of the arguments. A kernel
of a script, or of an interactive session, cannot be imported; then a watchdog ends the wait for a run that hangs
(`finished`).
"""

from __future__ import annotations

import importlib
import io
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch import Tensor

from kernels.dispatch.registry import Choice
from tuner.measure.children import Patience, context, without_main
from tuner.outcome import DeviceHung, Kind, Outcome, of_death
from tuner.triton.case import Launch
from tuner.triton.checking.buffers import has_room
from tuner.triton.checking.holders import tensors
from tuner.triton.configurations import IMPLEMENTATION
from tuner.triton.isolation.attempts import Answer, Attempts, Forked, Work, can_fork, quiet, serve
from tuner.triton.jit_source import function_of

SHORTEST = 10.0  # seconds that a first run may take at least, however fast the others were
START = 120.0  # seconds that a new process may take to import the kernel's module
GONE = 5.0  # seconds to wait for the end of a process that was killed
CONTEXT = 2**30  # bytes of a GPU that another process needs for itself
LARGEST = 4 * 2**30  # bytes of arguments that are sent to another process
FIRST, LAST = 1e-5, 1e-2  # seconds between two looks at a GPU


class FirstRuns:
    """attempts: where the runs are tried. is_check: whether the child makes the whole check and answers with its
    result."""

    def __init__(self, attempts: Attempts, limit: float, is_check: bool) -> None:
        self.attempts, self.is_check = attempts, is_check
        self.patience = Patience(shortest=min(SHORTEST, limit), longest=limit)

    def answer(self, choice: Choice) -> Answer:
        """What came of the first run of `choice`. Raises NoChild if no process can be started."""
        began = time.monotonic()
        found = self.attempts.answer(choice, self.patience.check(IMPLEMENTATION))
        outcome = found.ended or Outcome(Kind.TIMED, seconds=time.monotonic() - began)
        self.patience.learn(IMPLEMENTATION, outcome)
        return found

    def close(self) -> None:
        self.attempts.close()


def in_a_fork(work: Work, limit: float) -> FirstRuns | None:
    """Runs whose child does `work` for a choice; None if this system has no forks."""
    return FirstRuns(Attempts(partial(Forked, work)), limit, True) if can_fork() else None


def in_a_new_process(
    launch: Launch, where: str, limit: float, prepared: Callable[[Choice], tuple[Any, dict[str, Any]]], again: bool
) -> FirstRuns | None:
    """Runs of a kernel that another process can import, with copies of the arguments of `launch` on the device `where`.

    prepared: the grid and the settings of a choice; it prepares the arguments for it. again: it changes them. None if
    the kernel cannot be imported, or if its arguments are too large or cannot be sent.
    """
    name = imported_as(launch.kernel)
    if name is None or not _fits(launch, where):
        return None

    def message(choice: Choice, first: bool) -> Any:
        try:
            grid, settings = prepared(choice)
        except Exception:  # it will be raised in this process too
            return None
        return grid, settings, written(launch) if first or again else None

    with suppress(Exception):  # what cannot be sent
        written(launch)
        return FirstRuns(Attempts(partial(NewProcess, name, where), message), limit, False)
    return None


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


def written(launch: Launch) -> bytes:
    """The arguments with the contents of their tensors. Raises what `torch.save` raises."""
    file = io.BytesIO()
    torch.save((launch.args, dict(launch.kwargs)), file)
    return file.getvalue()


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


def _fits(launch: Launch, where: str) -> bool:
    """Whether the tensors of a call can be sent to another process and have room there."""
    devices = {str(tensor.device) for _, tensor, _ in tensors(launch.arguments)}
    size = sum(tensor.untyped_storage().nbytes() for _, tensor, _ in tensors(launch.arguments))
    more = size + (CONTEXT if torch.device(where).type == "cuda" else 0)
    return devices <= {where} and size <= LARGEST and has_room(torch.device(where), more)


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
