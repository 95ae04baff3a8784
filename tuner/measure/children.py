"""The child process that measures, as its parent sees it: asked, waited for with patience, replaced when it is gone.

How long a check may take is learnt: at first `longest` seconds, since a compiler may be at work; then a few times what
the slowest good check of the implementation took, and half as long after each one that never ended. Nothing is waited
for beyond the end of the session: what that cuts short is not known, and no outcome.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import sys
import tempfile
import time
import types
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tuner.measure.roofline import Probe, Rates
from tuner.measure.worker import Answer, Job, Settings, Step, serve
from tuner.outcome import MESSAGE, Kind, Outcome

TIMES = 10  # what a check may take, in parts of the slowest good one of its implementation


class TimeIsUp(Exception):
    """The session ended before the answer came."""


@dataclass
class Patience:
    """Seconds. shortest, longest: between these lies what a check may take. definition: what it may take. start: the
    same for the process."""

    shortest: float = 20.0
    longest: float = 60.0
    definition: float = 120.0
    start: float = 120.0
    good: dict[str, float] = field(default_factory=dict)  # by implementation, the slowest good check
    newest: dict[str, float] = field(default_factory=dict)  # the newest good one
    hung: dict[str, int] = field(default_factory=dict)

    def check(self, implementation: str) -> float:
        """How long a check of `implementation` is waited for."""
        if implementation in self.good:
            wanted = TIMES * self.good[implementation]
        else:
            wanted = self.longest / 2 ** self.hung.get(implementation, 0)
        return min(max(wanted, self.shortest), self.longest)

    def expected(self, implementation: str) -> float:
        """How long a check of `implementation` is likely to take; nothing where nothing is known."""
        if implementation in self.newest:
            return self.newest[implementation]
        return self.longest if implementation in self.hung else 0.0

    def learn(self, implementation: str, outcome: Outcome) -> None:
        """Take in how a check ended."""
        if outcome.kind is Kind.TIMED:
            self.good[implementation] = max(self.good.get(implementation, 0.0), outcome.seconds)
            self.newest[implementation] = outcome.seconds
        elif outcome.kind is Kind.TIMED_OUT:
            self.hung[implementation] = self.hung.get(implementation, 0) + 1


class Children:
    """One child at a time, started when it is needed. Close it, or use `with`."""

    def __init__(self, settings: Settings, patience: Patience | None = None) -> None:
        self.settings, self.patience = settings, patience or Patience()
        self.started = 0  # children, so far
        self.end = math.inf  # of time.monotonic(): nothing is waited for any longer
        self.rates = Rates(self._rate)
        self.process: Any = None
        self.pipe: Connection | None = None
        handle, name = tempfile.mkstemp(prefix="tuner-", suffix=".log")
        os.close(handle)
        self.log = Path(name)

    def __enter__(self) -> Children:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self.pipe is not None and self.process.pid is not None:
            self.pipe.close()  # an idle child ends by itself, and leaves nothing behind
            self.process.join(2.0)
        self._end()
        self.log.unlink(missing_ok=True)

    def run(self, job: Job) -> tuple[Outcome, ...]:
        """The outcome of every choice of `job`. Choices that kill the child are left out when the others are timed.

        Raises TimeIsUp when the session's end comes first.
        """
        found: dict[int, Outcome] = {}
        while left := [number for number in range(len(job.choices)) if number not in found]:
            some = replace(job, choices=tuple(job.choices[number] for number in left))
            outcomes, blamed = self._try(some)
            if blamed is None:
                found |= dict(zip(left, outcomes, strict=True))
            else:  # its samples must be taken beside those of the others: they are asked for again
                found[left[blamed]] = outcomes[blamed]
            for choice, each in zip(some.choices, outcomes, strict=True):
                self.patience.learn(choice.implementation, each)
        return tuple(found[number] for number in range(len(job.choices)))

    def _rate(self, probe: Probe) -> float:
        """The device's answer to `probe`; no limit where the child does not give one."""
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
        """Outcomes, and the number of the choice that ended the child, if one did."""
        pipe = self._ready()
        at, until = Step("definition"), self.patience.definition
        try:
            pipe.send(job)
            while pipe.poll(min(until, self.left())):
                message = pipe.recv()
                if isinstance(message, Answer):
                    return self._answered(message)
                at, until = message, self._seconds(message, job)
        except (EOFError, OSError) as error:
            ended = self._died(error)
        else:
            ended = Outcome(Kind.TIMED_OUT, message=f"no answer within {until:.3g} s: {at.what}")
        self._end()
        if self.left() <= 0:
            raise TimeIsUp
        if at.what == "definition":  # nobody else will fare better
            return (ended,) * len(job.choices), None
        outcomes = [Outcome(Kind.CRASHED, message="not reached")] * len(job.choices)
        outcomes[at.choice] = ended
        return tuple(outcomes), at.choice

    def left(self) -> float:
        """Seconds of the session."""
        return max(self.end - time.monotonic(), 0.0)

    def _answered(self, answer: Answer) -> tuple[tuple[Outcome, ...], int | None]:
        if answer.trusted:
            return answer.outcomes, None
        self._end()
        failed = [n for n, each in enumerate(answer.outcomes) if each.kind is not Kind.TIMED or not each.samples]
        reached = [n for n in failed if answer.outcomes[n].message != "not reached"]
        return answer.outcomes, reached[-1] if reached else failed[-1]

    def _seconds(self, step: Step, job: Job) -> float:
        if step.what == "check":
            return self.patience.check(job.choices[step.choice].implementation)
        if step.what == "definition":
            return self.patience.definition
        calls = (job.repeats + 4) * len(job.choices)
        return self.patience.shortest + 4 * (job.budget_seconds + step.call / 1e3 * calls)

    def _ready(self) -> Connection:
        if self.pipe is not None and self.process.is_alive():
            return self.pipe
        self._end()
        ours: Any = context()
        self.pipe, theirs = ours.Pipe()
        self.process = ours.Process(target=serve, args=(theirs, self.settings, str(self.log)), daemon=True)
        self.log.write_bytes(b"")
        with without_main():
            self.process.start()
        theirs.close()
        self.started += 1
        try:
            assert self.pipe is not None
            if not self.pipe.poll(self.patience.start):
                raise EOFError
            self.pipe.recv()
        except (EOFError, OSError) as error:
            told = self._died(error).message
            self._end()
            raise RuntimeError(f"the process that measures did not start: {told}") from error
        return self.pipe

    def _died(self, error: BaseException) -> Outcome:
        """What is known of the end of the child."""
        self.process.join(2.0)
        code = self.process.exitcode
        how = f"exit code {code}" if code is None or code >= 0 else f"signal {-code}"
        last = self.log.read_text(errors="replace").strip()[-MESSAGE:]
        return Outcome(Kind.CRASHED, message=f"its process ended: {how}. {last}".strip())

    def _end(self) -> None:
        if self.pipe is not None:
            self.pipe.close()
        if self.process is not None and self.process.pid is not None:
            with suppress(ProcessLookupError):
                self.process.kill()
            self.process.join()
        self.pipe = self.process = None


@contextmanager
def without_main() -> Iterator[None]:
    """A child would run the script that asked for it once more, and needs nothing of it."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def context() -> Any:
    """Where the system can: a server that has torch loaded and forks, so that a new child costs nothing."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    found = multiprocessing.get_context("forkserver")
    found.set_forkserver_preload(["tuner.measure.preload"])
    return found
