"""Measures the configurations of one call of a user's Triton kernel, in this process.

A kernel's arguments cannot be sent to another process. So before each check all tensors of the call are set back to
what they were, a configuration whose output differs from the default's is wrong, and an error of the device ends the
search.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from kernels.dispatch.registry import Choice
from tuner.measure import garbage
from tuner.measure.measure import Call, Clock, measure, timing
from tuner.measure.worker import CLEARLY, RACED
from tuner.outcome import Kind, Outcome, of_exception, poisons
from tuner.search.bench import Bench, DeviceLost
from tuner.search.effort import Effort
from tuner.triton.buffers import Buffers
from tuner.triton.case import Case, Launch

TURNS = 5  # of a comparison with the user's own benchmark: fewer cannot tell two apart with confidence


@dataclass(frozen=True)
class Prepared:
    """A call to time. prepare: what to run before each call."""

    call: Call
    prepare: Call


class Timer(Protocol):
    """How calls are timed. All times are milliseconds."""

    def sample(self, prepared: Prepared, best: float, effort: Effort) -> tuple[float, ...]:
        """One sample or more of a call; best: the time of the fastest so far."""

    def turns(self, calls: Mapping[Choice, Prepared], effort: Effort) -> dict[Choice, tuple[float, ...]]:
        """Samples of several calls, taken in turns."""


@dataclass(frozen=True)
class Clocked:
    """Times with `tuner.measure.measure`: `prepare` is not timed, and a clearly slower call gets few samples."""

    device: str
    clock: Clock | None = None

    def sample(self, prepared: Prepared, best: float, effort: Effort) -> tuple[float, ...]:
        few = self._measure(prepared, min(RACED, effort.repeats), effort)
        if timing(few).median > CLEARLY * best:
            return few
        return few + self._measure(prepared, max(1, effort.repeats - RACED), effort)

    def turns(self, calls: Mapping[Choice, Prepared], effort: Effort) -> dict[Choice, tuple[float, ...]]:
        return self._timed(calls, effort.rounds, effort.final_seconds)

    def _measure(self, prepared: Prepared, repeats: int, effort: Effort) -> tuple[float, ...]:
        return self._timed({Choice(""): prepared}, repeats, effort.seconds)[Choice("")]

    def _timed(self, calls: Mapping[Choice, Prepared], repeats: int, seconds: float) -> dict[Choice, tuple[float, ...]]:
        found = measure(
            {str(choice): each.call for choice, each in calls.items()},
            device=self.device,
            warmup=1,
            repeats=repeats,
            budget_seconds=seconds,
            prepare={str(choice): each.prepare for choice, each in calls.items()},
            clock=self.clock,
        )
        return {choice: found[str(choice)].samples for choice in calls}


@dataclass(frozen=True)
class Injected:
    """Times with a function such as `triton.testing.do_bench`: its median is one sample, and includes `prepare`."""

    do_bench: Callable[..., Any]

    def sample(self, prepared: Prepared, best: float, effort: Effort) -> tuple[float, ...]:
        def both() -> None:
            prepared.prepare()
            prepared.call()

        found = self.do_bench(both, quantiles=(0.5, 0.2, 0.8))
        return (float(found[0] if isinstance(found, Sequence) else found),)

    def turns(self, calls: Mapping[Choice, Prepared], effort: Effort) -> dict[Choice, tuple[float, ...]]:
        rounds = [
            {choice: self.sample(each, math.inf, effort)[0] for choice, each in calls.items()} for _ in range(TURNS)
        ]
        return {choice: tuple(each[choice] for each in rounds) for choice in calls}


class KernelBench(Bench):
    """The bench of one call. check: whether a configuration must write what the default writes. pre_hook: the user's,
    which then prepares a call in place of the buffers."""

    def __init__(
        self,
        case: Case,
        launch: Launch,
        buffers: Buffers,
        timer: Timer,
        effort: Effort,
        *,
        check: bool = True,
        pre_hook: Callable[..., Any] | None = None,
    ) -> None:
        self.case, self.launch, self.buffers, self.timer, self.effort = case, launch, buffers, timer, effort
        self.check, self.pre_hook = check, pre_hook
        self.expected: Any = None  # what the default writes, once it has run
        self.checks: dict[Choice, Outcome | None] = {}  # what was wrong with each choice that was checked
        self.is_lost = False
        self.undo: Callable[[], None] = lambda: None  # undoes what `prepare` did

    def prepare(self) -> None:
        self.undo = garbage.spare_existing()

    def forget(self) -> None:
        """The buffers are as they were before the search."""
        self.undo()
        if not self.is_lost:
            self.buffers.reset()

    def measure(self, choice: Choice, best: float) -> Outcome:
        began = time.monotonic()
        if failed := self._failure(choice):
            return failed
        try:
            samples = self.timer.sample(self._prepared(choice), best, self.effort)
        except Exception as error:
            return self._failed(choice, error)
        if not all(math.isfinite(sample) for sample in samples):
            return Outcome(Kind.CRASHED, message="its benchmark gave no time")
        return Outcome(Kind.TIMED, samples, seconds=time.monotonic() - began)

    def compare(self, times: Mapping[Choice, float]) -> dict[Choice, Outcome]:
        """A choice that this process has checked before is not checked again: the arguments are the same."""
        outcomes = {choice: failed for choice in times if (failed := self._failure(choice)) is not None}
        self.buffers.reset()
        some = {choice: self._prepared(choice) for choice in times if choice not in outcomes}
        found = self.timer.turns(some, self.effort) if some else {}
        return outcomes | {choice: Outcome(Kind.TIMED, samples) for choice, samples in found.items()}

    def _prepared(self, choice: Choice) -> Prepared:
        config = self.case.choices[choice]
        ready = self.pre_hook or self.buffers
        return Prepared(partial(self.launch.run, config), partial(self.launch.prepare, config, ready))

    def _failure(self, choice: Choice) -> Outcome | None:
        """None if `choice` writes what the default writes."""
        default = self.case.default
        if self.check and default not in self.checks:
            self.checks[default] = self._checked(default)  # its output is needed, even if its time is known
        if choice not in self.checks:
            self.checks[choice] = self._checked(choice)
        return self.checks[choice]

    def _checked(self, choice: Choice) -> Outcome | None:
        """Run `choice` once on the original arguments."""
        try:
            self.buffers.reset()
            prepared = self._prepared(choice)
            prepared.prepare()
            prepared.call()
            if not self.check or not self.buffers.whole:
                return None
            if choice == self.case.default:
                self.expected = self.buffers.written()
            reason = None if self.expected is None else self.buffers.difference(self.expected)
        except Exception as error:
            return self._failed(choice, error)
        return Outcome(Kind.WRONG, message=reason) if reason else None

    def _failed(self, choice: Choice, error: Exception) -> Outcome:
        outcome = of_exception(error)
        if poisons(error):
            self.is_lost = True
            raise DeviceLost(choice, outcome, error) from error
        return outcome
