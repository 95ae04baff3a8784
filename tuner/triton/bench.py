"""Measures the configurations of one call of a user's Triton kernel.

They are timed in this process. Before that, each is compiled, and runs for the first time, in a child process that may
hang or crash (`tuner.triton.isolation`). A configuration is checked on guarded copies of the arguments
(`tuner.triton.output_check`), all tensors are set back to what they were after the search, and an error of the device
in this process ends the search. The outcome of a configuration says what was checked, and against what.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from kernels.dispatch.registry import Choice
from tuner.measure import garbage, resources
from tuner.measure.attempts import NoChild
from tuner.measure.measure import LEAST_ROUNDS, Call, Clock, measure, timing
from tuner.measure.worker import CLEARLY, RACED
from tuner.outcome import Kind, Outcome, of_exception, poisons
from tuner.search.bench import Bench, DeviceLost
from tuner.search.effort import Effort
from tuner.triton.case import COMPARED, Case, Launch, is_valid
from tuner.triton.copies import Buffers, CannotCheck
from tuner.triton.isolation import HERE, LONGEST, Isolation, finished
from tuner.triton.output_check import OutputCheck

TURNS = LEAST_ROUNDS  # of a comparison with the user's own benchmark
CHECKED = "checked"  # the first word of the message of an outcome whose output was checked
DOUBTED = "it may be wrong: "  # in the message of a reference that others agree to differ from
AGREEING = 3  # configurations that are compared with each other, at most, if all differ from the reference


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
        alone = {Choice(""): prepared}
        few = self._timed(alone, min(RACED, effort.repeats), effort.seconds)[Choice("")]
        if timing(few).median > CLEARLY * best:
            return few
        return few + self._timed(alone, max(1, effort.repeats - RACED), effort.seconds)[Choice("")]

    def turns(self, calls: Mapping[Choice, Prepared], effort: Effort) -> dict[Choice, tuple[float, ...]]:
        return self._timed(calls, effort.rounds, effort.final_seconds, LEAST_ROUNDS)

    def _timed(
        self, calls: Mapping[Choice, Prepared], repeats: int, seconds: float, least: int = 1
    ) -> dict[Choice, tuple[float, ...]]:
        found = measure(
            {str(choice): each.call for choice, each in calls.items()},
            device=self.device,
            warmup=1,
            repeats=max(repeats, least),
            least=least,
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
        """One sample in milliseconds. Raises ValueError if the function returns something else."""

        def both() -> None:
            prepared.prepare()
            prepared.call()

        found = self.do_bench(both, quantiles=(0.5, 0.2, 0.8))
        try:
            return (float(found[0] if isinstance(found, Sequence) and not isinstance(found, str) else found),)
        except (TypeError, ValueError, IndexError):
            raise ValueError(f"do_bench must return milliseconds, but returned {found!r}.") from None

    def turns(self, calls: Mapping[Choice, Prepared], effort: Effort) -> dict[Choice, tuple[float, ...]]:
        rounds = [
            {choice: self.sample(each, math.inf, effort)[0] for choice, each in calls.items()} for _ in range(TURNS)
        ]
        return {choice: tuple(each[choice] for each in rounds) for choice in calls}


class KernelBench(Bench):
    """The bench of one call. check: None if configurations may write different results. pre_hook: the user's, which
    then prepares a call in place of the buffers. limit: seconds of a compilation, and of a first run, in another
    process; None if all happens in this one."""

    def __init__(
        self,
        case: Case,
        launch: Launch,
        buffers: Buffers,
        timer: Timer,
        effort: Effort,
        *,
        check: OutputCheck | None = None,
        pre_hook: Callable[..., Any] | None = None,
        limit: float | None = None,
    ) -> None:
        self.case, self.launch, self.buffers, self.timer, self.effort = case, launch, buffers, timer, effort
        self.check, self.pre_hook, self.longest = check, pre_hook, LONGEST if limit is None else limit
        self.reference: Choice | None = None  # the first choice that runs: the default, unless it fails
        self.checks: dict[Choice, Outcome | None] = {}  # what was wrong with each choice that was checked
        self.doubt = ""  # why the reference may be wrong
        self.errors: dict[Choice, Exception] = {}
        self.compiled: dict[Choice, Any] = {}  # the kernel that was timed
        self.is_lost = False
        self.isolation: Isolation | None = None
        if limit is not None:
            where = launch if check is None else check.launch
            self.isolation = Isolation(case, where, limit, self._examined, self._restore)
        self.undo: Callable[[], None] = lambda: None  # undoes what `prepare` did

    def prepare(self) -> None:
        self.undo = garbage.spare_existing()

    def forget(self) -> None:
        """The buffers are as they were before the search; those to be zeroed before a call are zero."""
        self.undo()
        if self.isolation is not None:
            self.isolation.close()
        if not self.is_lost:
            if self.check is not None:
                self.check.release()
            self.buffers.leave()

    def measure(self, choice: Choice, best: float) -> Outcome:
        began = time.monotonic()
        if failed := self.failure(choice):
            return failed
        try:
            samples = self.timer.sample(self._prepared(choice), best, self.effort)
        except Exception as error:
            return self._failed(choice, error)
        if not all(math.isfinite(sample) for sample in samples):
            return Outcome(Kind.CRASHED, message="its benchmark gave no time")
        return self._timed(choice, samples, time.monotonic() - began)

    def compare(self, times: Mapping[Choice, float], more: int = 1) -> dict[Choice, Outcome]:
        """A choice that this process has checked before is not checked again: the arguments are the same."""
        outcomes = {choice: failed for choice in times if (failed := self.failure(choice)) is not None}
        self.doubt = self.doubt or self._doubted()
        self.buffers.reset()
        some = {choice: self._prepared(choice) for choice in times if choice not in outcomes}
        rounds, seconds = more * self.effort.rounds, more * self.effort.final_seconds
        effort = replace(self.effort, rounds=rounds, final_seconds=seconds)
        while some:
            try:
                found = self.timer.turns(some, effort)
            except Exception as error:  # of one configuration; the others are timed again without it
                blamed = getattr(error, "candidate", None)
                choice = next((each for each in some if str(each) == blamed), None)
                if choice is None:
                    raise
                outcomes[choice] = self._failed(choice, error)
                del some[choice]
            else:
                return outcomes | {each: self._timed(each, samples) for each, samples in found.items()}
        return outcomes

    def note(self, choice: Choice) -> str:
        """What was checked of a choice, and against what; empty if nothing was."""
        if self.check is None:
            return ""
        what = f"{CHECKED} on {len(self.check.states)} sets of inputs: {', '.join(self.check.written) or 'no output'}"
        if choice != self.reference:
            return f"{what}, against {self.reference}"
        return f"{what}, the reference" + (f"; {DOUBTED}{self.doubt}" if self.doubt else "")

    def failure(self, choice: Choice) -> Outcome | None:
        """None if `choice` writes what the reference writes. Raises CannotCheck if that cannot be seen."""
        if self.check is not None and self.reference is None and not self._has_failed_before(self.case.default):
            self._check_once(self.case.default)  # the reference, even if its time is known
        self._check_once(choice)
        return self.checks[choice]

    def _has_failed_before(self, choice: Choice) -> bool:
        """Whether it failed in an earlier search, perhaps so that the device was lost."""
        known = self.case.cache.known(self.case.problem).get(choice)
        if known is None or known.milliseconds is not None:
            return False
        return is_valid(known.outcome, choice) and not known.may_be_tried_again

    def _check_once(self, choice: Choice) -> None:
        if choice not in self.checks:
            self.checks[choice] = self._checked(choice)

    def precompile(self, choices: Sequence[Choice]) -> None:
        if self.isolation is not None:
            self.isolation.compile(choices)

    def _checked(self, choice: Choice) -> Outcome | None:
        """What is wrong with `choice`; if possible, another process compiles and runs it first."""
        try:
            answer = HERE if self.isolation is None else self.isolation.tried(choice)
        except NoChild as error:
            raise CannotCheck(str(error)) from error
        if answer.ended is not None:
            return answer.ended
        has_reference = self.check is None or self.reference is not None
        try:
            is_known = self.isolation is not None and self.isolation.is_check and not answer.raised
            reason = answer.value if is_known and has_reference else self._examined(choice)
        except CannotCheck:
            raise
        except Exception as error:
            return self._failed(choice, error)
        if not reason:
            return None
        return Outcome(Kind.WRONG, message=f"{reason}: {self.reference}" if reason.endswith(COMPARED) else reason)

    def _examined(self, choice: Choice) -> str | None:
        """Run `choice` on the original arguments; returns the mistake in the result, or None."""
        config = self.case.choices.config(choice)
        if self.check is None:
            self._restore(config)
            self.launch.run(config)
            finished(self.buffers.live.values(), self.longest)
            return None
        if self.reference is not None:
            return self.check.differs(config)
        if (reason := self.check.refer_to(config)) is None:
            self.reference = choice
        return reason

    def _doubted(self) -> str:
        """Why the reference may be wrong: all others that run give another result, and they agree; else empty."""
        others = [choice for choice in self.checks if choice != self.reference]
        different = [each for each in others if (found := self.checks[each]) and COMPARED in found.message]
        if self.check is None or len(different) < 2 or any(self.checks[each] is None for each in others):
            return ""
        first, *rest = different[:AGREEING]
        check = self.check.renewed()
        try:
            agree = check.refer_to(self.case.choices.config(first)) is None
            agree = agree and all(check.differs(self.case.choices.config(each)) is None for each in rest)
        except Exception as error:
            self._failed(first, error)
            agree = False
        return f"{len(different)} other configurations give another result, and agree" if agree else ""

    def _restore(self, config: Any) -> None:
        """Set the arguments back, and prepare them for `config`."""
        if self.check is not None:
            self.check.restore(config)
        else:
            self.buffers.reset()
            self.launch.prepare(config, self.pre_hook or self.buffers)

    def _prepared(self, choice: Choice) -> Prepared:
        config = self.case.choices.config(choice)
        ready = self.pre_hook or self.buffers

        def call() -> None:
            self.compiled[choice] = self.launch.run(config)

        return Prepared(call, partial(self.launch.prepare, config, ready))

    def _timed(self, choice: Choice, samples: tuple[float, ...], seconds: float = 0.0) -> Outcome:
        use = resources.of([self.compiled.get(choice)])
        return Outcome(Kind.TIMED, samples, self.note(choice), seconds, use)

    def _failed(self, choice: Choice, error: Exception) -> Outcome:
        outcome = of_exception(error)
        self.errors[choice] = error
        if poisons(error):
            self.is_lost = True
            raise DeviceLost(choice, outcome, error) from error
        return outcome
