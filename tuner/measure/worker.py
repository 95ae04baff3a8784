"""The child process that measures. It may crash, hang or be killed; its parent continues.

It answers one `Job` after the other over a pipe. Before each step it sends the choice and the kind of step, so that the
parent knows which choice to blame and how long to wait. It also says when its state cannot be trusted any more: after
an error of the device, or if a choice changed a global setting such as the number of threads.
"""

from __future__ import annotations

import ctypes
import gc
import importlib.util
import math
import os
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from kernels.dispatch import tuned
from kernels.dispatch.device import resolve
from kernels.dispatch.registry import Choice, Operation, Problem, operation
from nas.threads import checked_threads
from tuner import outcome
from tuner.measure import correctness, resources, roofline
from tuner.measure.measure import clock_of, measure
from tuner.outcome import Kind, Outcome

SAMPLE = 0.2  # milliseconds of a sample at least: shorter calls are repeated, and the time is divided
MOST_CALLS = 200  # in one sample
CHECKS = 2  # calls of the check
RACED = 3  # samples of a choice that is clearly slower than the best
CLEARLY = 1.5  # times the best
FIRST = 6  # times as long as later ones a first call takes at most
LONG = 1.0  # seconds; a check that takes longer has loaded a compiler, which stays in memory; a call is not short


@dataclass(frozen=True)
class Settings:
    """device: as torch names it. threads: of torch; None keeps its own. load: files that register operations. memory:
    bytes that a process on a CPU may allocate beyond what it starts with, None for no limit. Raises ValueError if torch
    cannot use as many threads."""

    device: str = "cpu"
    threads: int | None = None
    load: tuple[str, ...] = ()
    memory: int | None = None

    def __post_init__(self) -> None:
        if self.threads is not None:
            checked_threads(self.threads)


@dataclass(frozen=True)
class Job:
    """Measure `choices` on `problem`, in turns. seed: of the inputs. best: milliseconds of the fastest so far. least:
    rounds that are timed even if they take longer than the budget."""

    problem: Problem
    choices: tuple[Choice, ...]
    seed: int
    repeats: int
    budget_seconds: float
    best: float = math.inf
    least: int = 1


@dataclass(frozen=True)
class Step:
    """The next step: `definition`, `check`, `time`, or `ready`. call: milliseconds of one call, as far as known."""

    what: str
    choice: int = 0
    call: float = 0.0


@dataclass(frozen=True)
class Answer:
    """The outcome of every choice of a job. trusted: whether the process may be used again."""

    outcomes: tuple[Outcome, ...]
    trusted: bool = True


def serve(connection: Connection, settings: Settings) -> None:
    """The main loop of the process: answer until the other end of the pipe is closed."""
    leave_tracker()
    keep_freed_memory()
    worker = Worker(settings, connection.send)
    if settings.memory is not None and settings.device == "cpu":
        _limit_memory(settings.memory)
    gc.freeze()  # the collection before each measurement then skips the libraries, which stay in memory
    connection.send(Step("ready"))
    while True:
        asked = connection.recv()
        if isinstance(asked, roofline.Probe):
            connection.send(roofline.rate(asked, settings.device, worker.clock))
            continue
        answer = worker.measure(asked)
        connection.send(answer)
        if not answer.trusted:
            return
        if any(outcome.seconds > LONG for outcome in answer.outcomes):
            gc.freeze()


class Worker:
    """Measures jobs. It keeps the inputs and the definition's results of the last problem."""

    def __init__(self, settings: Settings, report: Callable[[Any], None] = lambda step: None) -> None:
        self.device, self.report = settings.device, report
        if settings.device != "cpu":  # problems say "cuda", which is the current GPU
            torch.cuda.set_device(resolve(settings.device))
        if settings.threads is not None:
            torch.set_num_threads(settings.threads)
        for path in settings.load:
            load(path)
        self.clock = clock_of(settings.device)
        correctness.warm_up()
        # A pool of compilers would outlive a killed child, and takes longer to start than a kernel to compile.
        sys.modules["torch._inductor.config"].compile_threads = 1  # type: ignore[attr-defined]
        self.settings = _global_settings()
        self.last: tuple[tuple[Problem, int], correctness.Trial] | None = None

    def measure(self, job: Job) -> Answer:
        """Check every choice, then time the correct ones in turns."""
        try:
            found = operation(job.problem.operation)
            trial = self._trial(found, job)
        except Exception as error:  # the definition cannot be computed, so nothing can be checked
            failed = outcome.of_exception(error)
            if failed.kind is not Kind.OUT_OF_MEMORY:
                failed = Outcome(Kind.CALL, message=f"the definition: {failed.message}"[: outcome.MESSAGE])
            return Answer((failed,) * len(job.choices), trusted=not outcome.poisons(error))
        outcomes: list[Outcome] = []
        calls: dict[int, Callable[..., Any]] = {}
        trusted = True
        for number, choice in enumerate(job.choices):
            trial = self._trial(found, job)  # a new one if the choice before has spoilt it
            self.report(Step("check", number))
            outcomes.append(self._checked(found, job.problem, choice, trial))
            trusted = trusted and self.trusted
            if not trusted:
                left = job.choices[number + 1 :]
                return Answer((*outcomes, *[Outcome(Kind.CRASHED, message="not reached")] * len(left)), trusted=False)
            if outcomes[-1].kind is Kind.TIMED:
                calls[number] = tuned.bound(found, choice)
        return self._timed(job, outcomes, calls, trial) if calls else Answer(tuple(outcomes))

    def _trial(self, found: Operation, job: Job) -> correctness.Trial:
        key = job.problem, job.seed
        if self.last is None or self.last[0] != key:
            self.last = None  # first, so that two are never in memory at once
            self.report(Step("definition"))
            self.last = key, correctness.trial(found, job.problem, job.seed)
        return self.last[1]

    def _checked(self, found: Operation, problem: Problem, choice: Choice, trial: correctness.Trial) -> Outcome:
        """TIMED, without samples yet, if the choice is correct."""
        self.trusted = True
        try:
            found.check(choice, problem)
        except ValueError as error:
            return Outcome(Kind.REFUSED, message=str(error)[: outcome.MESSAGE])
        began = self.clock.now()
        implementation = found.implementations[choice.implementation]
        wanted = any(gradient is not None for gradient in trial.gradients)
        if wanted and not implementation.gradients:
            return Outcome(Kind.REFUSED, message=f"{choice.implementation} has no gradients, which {problem} needs")
        try:
            with warnings.catch_warnings(), resources.launched(implementation.is_triton) as kernels:
                warnings.simplefilter("ignore")
                reason = correctness.differences(
                    trial,
                    lambda *a, **k: tuned.launch(found, problem, choice, *a, **k),
                    correctness.dtype_of(problem),
                    guarded=implementation.is_triton,
                    deterministic=implementation.deterministic,
                )
        except Exception as error:
            self.trusted = not outcome.poisons(error) and _global_settings() == self.settings
            return outcome.of_exception(error)
        seconds = self.clock.now() - began
        if _global_settings() != self.settings:
            self.trusted = False
            reason = reason or "it changed a global setting, such as the number of threads"
        if reason:
            self.last = None if reason in correctness.SPOILT else self.last
            return Outcome(Kind.WRONG, message=reason, seconds=seconds)
        return Outcome(Kind.TIMED, seconds=seconds, resources=resources.of(kernels))

    def _once(self, call: Callable[[], object], best: float) -> float:
        """Milliseconds of one call. If it looks slow, the faster of two: the first call of compiled code on a CPU takes
        up to six times as long as later ones. One that is slow even then, and long, is not called again."""
        first = self.clock.time(call)
        is_slow = first > CLEARLY * best
        is_hopeless = first > max(FIRST * CLEARLY * best, LONG * 1e3)
        return min(first, self.clock.time(call)) if is_slow and not is_hopeless else first

    def _timed(
        self, job: Job, outcomes: list[Outcome], correct: dict[int, Callable[..., Any]], trial: correctness.Trial
    ) -> Answer:
        calls: dict[int, Callable[[], object]] = {}
        lengths: dict[int, int] = {}
        slow = True
        for number, launch in correct.items():
            self.report(Step("time", number, outcomes[number].seconds * 1e3 / CHECKS))
            try:
                call = calls[number] = trial.timed(launch)
                once = self._once(call, job.best)
            except Exception as error:
                outcomes[number] = outcome.of_exception(error)
                return Answer(tuple(outcomes), trusted=False)
            slow = slow and once > CLEARLY * job.best
            # The clock of a GPU clears its cache before every sample, so a sample must be one call.
            short = self.device == "cpu" and once < SAMPLE
            lengths[number] = min(MOST_CALLS, math.ceil(SAMPLE / max(once, 1e-6))) if short else 1
        repeats = min(RACED, job.repeats) if slow else job.repeats
        try:
            timings = measure(
                {str(number): _repeated(call, lengths[number]) for number, call in calls.items()},
                device=self.device,
                warmup=0 if slow else 1,
                repeats=max(repeats, job.least),
                least=job.least,
                budget_seconds=job.budget_seconds,
                clock=self.clock,
            )
        except Exception as error:  # of one choice; the others are timed again by a new process
            number = int(getattr(error, "candidate", next(iter(calls))))
            outcomes[number] = outcome.of_exception(error)
            return Answer(tuple(outcomes), trusted=False)
        for number in calls:
            samples = tuple(sample / lengths[number] for sample in timings[str(number)].samples)
            outcomes[number] = replace(outcomes[number], samples=samples)
        return Answer(tuple(outcomes))


def _repeated(call: Callable[[], object], times: int) -> Callable[[], object]:
    if times == 1:
        return call

    def repeat() -> None:
        for _ in range(times):
            call()

    return repeat


def load(file: str | Path) -> None:
    """Run a file that registers operations, once per process. Raises ValueError if it is no Python file."""
    path = Path(file)
    name = f"tuner_loaded_{path.stem}"
    if name in sys.modules:
        return
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ValueError(f"{path} is not a Python file that registers operations.")
    sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[name])


def _global_settings() -> tuple:
    """The global settings that a choice must not change."""
    return (
        torch.get_num_threads(),
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
        torch.are_deterministic_algorithms_enabled(),
        torch.get_float32_matmul_precision(),
        torch.get_default_device(),
    )


def keep_freed_memory() -> None:
    """From now on this process keeps freed memory, but for blocks of 32 MiB and more. Else glibc returns it at moments
    that depend on what ran before, and a call that must map it again takes up to twice as long."""
    if sys.platform == "linux" and hasattr(library := ctypes.CDLL(None), "mallopt"):
        library.mallopt(-3, 2**25)  # M_MMAP_THRESHOLD, the largest value that glibc reaches by itself
        library.mallopt(-1, 2**31 - 1)  # M_TRIM_THRESHOLD: never


def leave_tracker() -> None:
    """In a child: use a tracker of semaphores that says nothing about those that a killed child leaves."""
    os.environ["PYTHONWARNINGS"] = "ignore:resource_tracker"
    with suppress(AttributeError):
        resource_tracker._resource_tracker._fd = None  # type: ignore[attr-defined]


def _limit_memory(more: int) -> None:
    """An allocation beyond the limit raises an error; without a limit the system would kill the process."""
    if sys.platform != "linux":
        return
    import resource

    # Not psutil: it would be imported in each worker, and a machine that only measures may not have it.
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * os.sysconf("SC_PAGE_SIZE") + more
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))
