"""The parent's side of the child process that measures: send jobs, wait with a timeout, replace a dead child.

The timeout of a check is learned. It starts at `longest` seconds, because a compiler may be running; then it is a
multiple of the slowest successful check of the implementation, and half of that after each check that never ended. The
parent never waits beyond the end of the session; a measurement that this cuts short has no outcome.

If a child is killed from outside, its whole job is done again: that says nothing about a choice, unless every child
dies that tries the choice alone.
"""

from __future__ import annotations

import math
import multiprocessing
import sys
import tempfile
import threading
import time
import types
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any

from tuner.measure.roofline import Probe, Rates
from tuner.measure.worker import Answer, Job, Settings, Step, serve
from tuner.outcome import LIVES, MESSAGE, UNKNOWN, Kind, Outcome, is_from_outside, of_death

TIMES = 10  # timeout of a check, relative to the slowest successful one of its implementation
GONE = 30.0  # seconds to wait for the end of a child that was killed: the driver of a GPU may need long
MOST_KILLED = 6  # children of one job that are killed from outside, before it is given up for this session


class TimeIsUp(Exception):
    """The session ended before the child answered."""


class Disturbed(RuntimeError):
    """The children of a job are killed from outside, again and again, and no choice is to blame."""


class _Killed(Exception):
    """The child was killed from outside at a step of `choice`, None for another step."""

    def __init__(self, choice: int | None, outcome: Outcome) -> None:
        super().__init__(outcome.message)
        self.choice, self.outcome = choice, outcome


@dataclass
class Patience:
    """Timeouts in seconds. shortest, longest: the range of the timeout of a check. definition: of computing the
    definition. start: of starting the process."""

    shortest: float = 20.0
    longest: float = 60.0
    definition: float = 120.0
    start: float = 120.0
    good: dict[str, float] = field(default_factory=dict)  # by implementation: the slowest successful check
    newest: dict[str, float] = field(default_factory=dict)  # the newest successful one
    hung: dict[str, int] = field(default_factory=dict)

    def check(self, implementation: str) -> float:
        """The timeout of a check of `implementation`."""
        if implementation in self.good:
            wanted = TIMES * self.good[implementation]
        else:
            wanted = self.longest / 2 ** self.hung.get(implementation, 0)
        return min(max(wanted, self.shortest), self.longest)

    def expected(self, implementation: str) -> float:
        """How long a check of `implementation` is likely to take; 0 if nothing is known."""
        if implementation in self.newest:
            return self.newest[implementation]
        return self.longest if implementation in self.hung else 0.0

    def learn(self, implementation: str, outcome: Outcome) -> None:
        """Learn from the outcome of a check."""
        if outcome.kind is Kind.TIMED:
            self.good[implementation] = max(self.good.get(implementation, 0.0), outcome.seconds)
            self.newest[implementation] = outcome.seconds
        elif outcome.kind is Kind.TIMED_OUT:
            self.hung[implementation] = self.hung.get(implementation, 0) + 1


class Children:
    """One child at a time, started when it is needed. Close this object, or use `with`."""

    def __init__(self, settings: Settings, patience: Patience | None = None) -> None:
        self.settings, self.patience = settings, patience or Patience()
        self.started, self.starting_seconds = 0, 0.0  # number of children so far, and the time until they were ready
        self.killed, self.killed_seconds = 0, 0.0  # those that were killed from outside, and the time that this took
        self.end = math.inf  # of time.monotonic(): the parent never waits longer
        self.rates = Rates(self._rate)
        self.process: Any = None
        self.pipe: Connection | None = None
        self.log: IO[bytes] | None = None  # what the child writes; the child removes the name of the file

    def __enter__(self) -> Children:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self.pipe is not None and self.process.pid is not None:
            self.pipe.close()  # an idle child then ends by itself and cleans up
            self.process.join(2.0)
        self._end()

    def run(self, job: Job) -> tuple[Outcome, ...]:
        """The outcome of every choice of `job`. If a choice kills the child, the others are timed again without it.

        Raises TimeIsUp if the session ends first, Disturbed if children are killed from outside again and again,
        RuntimeError if a child does not start.
        """
        found: dict[int, Outcome] = {}
        killed = own = 0  # deaths from outside: all, and those at a step of a choice
        while left := [number for number in range(len(job.choices)) if number not in found]:
            some = replace(job, choices=tuple(job.choices[number] for number in left))
            try:
                outcomes, blamed = self._try(some)
            except _Killed as death:
                killed, own = killed + 1, own + (death.choice is not None)
                if own == LIVES and death.choice is not None:
                    alone = replace(some, choices=(some.choices[death.choice],))
                    outcome = death.outcome if len(left) == 1 else self.run(alone)[0]
                    own, number = 0, left[death.choice]
                    if outcome.kind is not Kind.TIMED:
                        found[number], killed = outcome, 0
                if killed >= MOST_KILLED:
                    message = f"the process that measures was killed from outside {killed} times, with {job.problem}"
                    raise Disturbed(message) from None
                continue
            if blamed is None:
                found |= dict(zip(left, outcomes, strict=True))
            else:  # the others must be timed together, so they are sent again
                found[left[blamed]] = outcomes[blamed]
            for choice, each in zip(some.choices, outcomes, strict=True):
                self.patience.learn(choice.implementation, each)
        return tuple(found[number] for number in range(len(job.choices)))

    def _rate(self, probe: Probe) -> float:
        """The rate that the child measures for `probe`; infinite if it does not answer."""
        try:
            pipe = self._ready()
            pipe.send(probe)
            if pipe.poll(min(self.patience.longest, self.left())):
                return float(pipe.recv())
        except (EOFError, OSError):
            pass
        self._end()
        return math.inf

    def _try(self, job: Job) -> tuple[tuple[Outcome, ...], int | None]:
        """The outcomes, and the number of the choice that ended the child, None if none did. Raises _Killed."""
        pipe = self._ready()
        at, until = Step("definition"), self.patience.definition
        began = time.monotonic()
        try:
            pipe.send(job)
            while pipe.poll(min(until, self.left())):
                message = pipe.recv()
                if isinstance(message, Answer):
                    return self._answered(message)
                at, until = message, self._seconds(message, job)
        except (EOFError, OSError):
            ended, is_killed = self._died()
        else:
            message = f"no answer within {until:.3g} s: {at.what}"
            ended, is_killed = Outcome(Kind.TIMED_OUT, message=message), False
        self._end()
        if self.left() <= 0:
            raise TimeIsUp
        is_of_choice = at.what != "definition"
        if is_killed:
            seconds = time.monotonic() - began
            self.killed, self.killed_seconds = self.killed + 1, self.killed_seconds + seconds
            raise _Killed(at.choice if is_of_choice else None, replace(ended, seconds=seconds))
        if not is_of_choice:  # every choice would end the same way
            if ended.kind is Kind.CRASHED:
                ended = replace(ended, kind=Kind.CALL, message=f"the definition: {ended.message}")
            return (ended,) * len(job.choices), None
        outcomes = [Outcome(Kind.CRASHED, message="not reached")] * len(job.choices)
        outcomes[at.choice] = ended
        return tuple(outcomes), at.choice

    def left(self) -> float:
        """Seconds until the end of the session."""
        return max(self.end - time.monotonic(), 0.0)

    def _answered(self, answer: Answer) -> tuple[tuple[Outcome, ...], int | None]:
        if answer.trusted:
            return answer.outcomes, None
        self._end()
        failed = [n for n, each in enumerate(answer.outcomes) if each.kind is not Kind.TIMED]
        reached = [n for n in failed if answer.outcomes[n].message != "not reached"]
        if not failed:  # all were checked, but none has a time
            return answer.outcomes, 0
        return answer.outcomes, reached[-1] if reached else failed[-1]

    def _seconds(self, step: Step, job: Job) -> float:
        if step.what == "check":
            return self.patience.check(job.choices[step.choice].implementation)
        if step.what == "definition":
            return self.patience.definition
        calls = (job.repeats + 4) * len(job.choices)
        return self.patience.shortest + 4 * (job.budget_seconds + step.call / 1e3 * calls)

    def _ready(self) -> Connection:
        """The pipe to a child that waits for a job. A child that is killed from outside while it starts is replaced."""
        if self.pipe is not None and self.process.is_alive():
            return self.pipe
        for _ in range(MOST_KILLED):
            self._end()
            if self.left() <= 0:
                raise TimeIsUp
            began = time.monotonic()
            try:
                pipe = self._start()
                self.starting_seconds += time.monotonic() - began
                return pipe
            except (EOFError, OSError) as error:
                if self.left() <= 0:
                    self._end()
                    raise TimeIsUp from None
                died, is_killed = self._died(str(error))
            self._end()
            if not is_killed:
                break
            self.killed, self.killed_seconds = self.killed + 1, self.killed_seconds + time.monotonic() - began
        raise RuntimeError(f"the process that measures did not start: {died.message}")

    def _start(self) -> Connection:
        """A new child. Raises EOFError or OSError if it does not answer."""
        ours: Any = context()
        self.pipe, theirs = ours.Pipe()
        assert self.pipe is not None
        self.log = tempfile.NamedTemporaryFile(prefix="tuner-", suffix=".log", delete=False)  # noqa: SIM115
        self.process = ours.Process(target=serve, args=(theirs, self.settings, self.log.name), daemon=True)
        with theirs, without_main():
            _start_within(self.process, self.left())
        self.started += 1
        if not self.pipe.poll(min(self.patience.start, self.left())):
            raise EOFError
        self.pipe.recv()
        return self.pipe

    def _died(self, error: str = "") -> tuple[Outcome, bool]:
        """How the child ended, with the last lines that it wrote, and whether it was killed from outside."""
        if self.process is None or self.process.pid is None:  # there is no file for its log; or its server was killed
            return of_death(UNKNOWN, error), self.process is not None
        self.process.join(2.0)
        code = self.process.exitcode
        last = self._written().strip()[-MESSAGE:]
        return of_death(code, last), is_from_outside(code)

    def _written(self) -> str:
        if self.log is None:
            return ""
        self.log.seek(0)
        return self.log.read().decode(errors="replace")

    def _end(self) -> None:
        if self.pipe is not None:
            self.pipe.close()
        if self.process is not None and self.process.pid is not None:
            with suppress(ProcessLookupError):
                self.process.kill()
            self.process.join(GONE)
        if self.log is not None:
            self.log.close()
            Path(self.log.name).unlink(missing_ok=True)  # of a child that did not start
        self.pipe = self.process = self.log = None


def _start_within(process: Any, seconds: float) -> None:
    """Start a process, which takes long if its server must first import torch. Raises TimeIsUp after `seconds`, and
    what `process.start` raises."""
    errors: list[BaseException] = []

    def start() -> None:
        try:
            process.start()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=start, daemon=True)
    thread.start()
    thread.join(None if math.isinf(seconds) else seconds)
    if thread.is_alive():
        raise TimeIsUp
    for error in errors:
        raise error


@contextmanager
def without_main() -> Iterator[None]:
    """Inside the block a new process does not run the main script again; a child needs nothing from it."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def context() -> Any:
    """A server that has loaded torch and forks, so that new children start fast; else new processes."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    found = multiprocessing.get_context("forkserver")
    found.set_forkserver_preload(["tuner.measure.preload"])
    return found
