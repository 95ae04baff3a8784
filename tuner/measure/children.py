"""The parent's side of the child process that measures: send jobs, wait with a timeout, replace a dead child.

The first check of an implementation may take `longest` seconds, because a compiler may be running; a later one a
multiple of the slowest before, and half as long after each that never ended. The parent never waits beyond the end of
the session; a measurement that this cuts short has no outcome.

If a child is killed from outside, its whole job is done again: that says nothing about a choice, unless every child
dies that tries the choice alone.
"""

from __future__ import annotations

import math
import multiprocessing
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

from kernels.dispatch.registry import Choice
from nas.child import Child, Death, Died, Late
from tuner.measure.roofline import Probe, Rates
from tuner.measure.worker import Answer, Job, Settings, Step, serve
from tuner.outcome import LIVES, Kind, Outcome, of_death

TIMES = 10  # timeout of a check, relative to the slowest successful one of its implementation
MOST_KILLED = 6  # children of one job that are killed from outside, before it is given up for this session
# A server that has loaded torch and forks, so that new children start fast; else new processes.
METHOD: Literal["forkserver", "spawn"] = (
    "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
)
PRELOAD = ("tuner.measure.preload",)
Made = TypeVar("Made")


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
    definition. start: of starting the process. known: by implementation, what its checks take, as far as known."""

    shortest: float = 20.0
    longest: float = 60.0
    definition: float = 120.0
    start: float = 120.0
    known: dict[str, float] = field(default_factory=dict)

    def check(self, implementation: str) -> float:
        """The timeout of a check of `implementation`."""
        return min(max(TIMES * self.known.get(implementation, math.inf), self.shortest), self.longest)

    def learn(self, implementation: str, outcome: Outcome) -> None:
        """Learn from the outcome of a check."""
        if outcome.kind is Kind.TIMED:
            self.known[implementation] = max(self.known.get(implementation, 0.0), outcome.seconds)
        elif outcome.kind is Kind.TIMED_OUT:
            self.known[implementation] = self.check(implementation) / (2 * TIMES)


class Children:
    """One child at a time, started when it is needed. Close this object, or use `with`."""

    def __init__(self, settings: Settings, patience: Patience | None = None) -> None:
        self.settings, self.patience = settings, patience or Patience()
        self.started, self.starting_seconds = 0, 0.0  # number of children so far, and the time until they were ready
        self.killed, self.killed_seconds = 0, 0.0  # those that were killed from outside, and the time that this took
        self.end = math.inf  # of time.monotonic(): the parent never waits longer
        self.rates = Rates(self._rate)
        self.child: Child | None = None

    def __enter__(self) -> Children:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the child; one that is idle ends by itself and cleans up."""
        if self.child is not None:
            self.child.close()
            self.child = None

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

    def expected(self, choice: Choice) -> float:
        """How many seconds a check of `choice` is likely to take; 0 if nothing is known."""
        return self.patience.known.get(choice.implementation, 0.0)

    def left(self) -> float:
        """Seconds until the end of the session."""
        return max(self.end - time.monotonic(), 0.0)

    def _rate(self, probe: Probe) -> float:
        """The rate that the child measures for `probe`; infinite if it does not answer."""
        try:
            child = self._ready()
            child.send(probe)
            return float(child.receive(self._until(self.patience.longest)))
        except (Late, Died):
            self._kill()
            return math.inf

    def _try(self, job: Job) -> tuple[tuple[Outcome, ...], int | None]:
        """The outcomes, and the number of the choice that ended the child, None if none did. Raises _Killed."""
        child, at, seconds = self._ready(), Step("definition"), self.patience.definition
        began, death = time.monotonic(), None
        child.send(job)
        try:
            while not isinstance(message := child.receive(self._until(seconds)), Answer):
                at, seconds = message, self._seconds(message, job)
            return self._answered(message)
        except Late:
            ended = Outcome(Kind.TIMED_OUT, message=f"no answer within {seconds:.3g} s: {at.what}")
        except Died as died:
            death = died.death
            ended = of_death(death)
        self._kill()
        if self.left() <= 0:
            raise TimeIsUp
        is_of_choice = at.what != "definition"
        if death is not None and death.is_from_outside:
            ended = replace(ended, seconds=self._count_killed(began))
            raise _Killed(at.choice if is_of_choice else None, ended)
        if not is_of_choice:  # every choice would end the same way
            if ended.kind is Kind.CRASHED:
                ended = replace(ended, kind=Kind.CALL, message=f"the definition: {ended.message}")
            return (ended,) * len(job.choices), None
        outcomes = [Outcome(Kind.CRASHED, message="not reached")] * len(job.choices)
        outcomes[at.choice] = ended
        return tuple(outcomes), at.choice

    def _answered(self, answer: Answer) -> tuple[tuple[Outcome, ...], int | None]:
        if answer.trusted:
            return answer.outcomes, None
        self._kill()
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

    def _until(self, seconds: float) -> float:
        return min(time.monotonic() + seconds, self.end)

    def _ready(self) -> Child:
        """A child that waits for a job. One that is killed from outside while it starts is replaced."""
        if self.child is not None:
            return self.child
        for _ in range(MOST_KILLED):
            if self.left() <= 0:
                raise TimeIsUp
            began, death = time.monotonic(), Death(None, "it did not answer")
            try:
                self.child = _within(self.left(), self._start)
                self.started += 1
                self.child.receive(self._until(self.patience.start))
                self.starting_seconds += time.monotonic() - began
                return self.child
            except Late:
                pass
            except Died as died:
                death = died.death
            except OSError as error:
                death = Death(None, str(error))
            self._kill()
            if self.left() <= 0:
                raise TimeIsUp
            if not death.is_from_outside:
                break
            self._count_killed(began)
        raise RuntimeError(f"the process that measures did not start: {of_death(death).message}")

    def _start(self) -> Child:
        return Child(serve, self.settings, method=METHOD, preload=PRELOAD, quiet=True)

    def _count_killed(self, began: float) -> float:
        """Count a child that was killed from outside -> the seconds that it took."""
        seconds = time.monotonic() - began
        self.killed, self.killed_seconds = self.killed + 1, self.killed_seconds + seconds
        return seconds

    def _kill(self) -> None:
        if self.child is not None:
            self.child.kill()
            self.child = None


def _within(seconds: float, make: Callable[[], Made]) -> Made:
    """What `make` returns or raises. A process takes long to start if its server must first import torch: raises
    TimeIsUp after `seconds`."""
    made: list[Any] = []

    def work() -> None:
        try:
            made.append(make())
        except BaseException as error:
            made.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(None if math.isinf(seconds) else seconds)
    if not made:
        raise TimeIsUp
    if isinstance(made[0], BaseException):
        raise made[0]
    return made[0]
