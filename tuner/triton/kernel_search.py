"""The search of one call of somebody's Triton kernel: which of its configurations is fastest, and whether for sure.

As in `tuner.search.search`, but in this process, since nobody can send a kernel's arguments to another: the first
configuration is the default, a strategy proposes the others, one that raises or gives another result than the default
is recorded as what it is, and only a comparison in turns decides.
"""

from __future__ import annotations

import gc
import hashlib
import math
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from kernels.dispatch.registry import Choice, Problem
from tuner import strategies
from tuner.measure.measure import Call, Clock, measure, timing
from tuner.measure.worker import CLEARLY, RACED
from tuner.outcome import Kind, Outcome, of_exception, poisons
from tuner.search.decision import Decision, decide
from tuner.search.effort import Effort, effort
from tuner.search.notebook import Known, fastest, valid
from tuner.space import TuningSpace
from tuner.triton.buffers import Buffers
from tuner.triton.kernel_memory import IMPLEMENTATION

EVALUATIONS = {"none": 0, "quick": 40, "full": 250}  # configurations of one kernel; all, where there are no more
TURNS = 5  # of a comparison with somebody's own benchmark: fewer cannot tell two apart with confidence
TRIES = 3  # comparisons, when a finalist fails
CUT = "cut"  # in the place of the effort, the mark of a decision that lack of time hurried: it is not final


class Bench(Protocol):
    """How a call is timed: milliseconds, one sample or more."""

    def sample(self, call: Call, prepare: Call, best: float, effort: Effort) -> tuple[float, ...]: ...

    def turns(
        self, calls: Mapping[Choice, Call], prepare: Mapping[Choice, Call], effort: Effort
    ) -> dict[Choice, tuple[float, ...]]: ...


@dataclass(frozen=True)
class Clocked:
    """By `tuner.measure.measure`: what prepares a call is not timed, and one that is clearly slow is soon left
    alone."""

    device: str
    clock: Clock | None = None

    def sample(self, call: Call, prepare: Call, best: float, effort: Effort) -> tuple[float, ...]:
        few = self._measure(call, prepare, min(RACED, effort.repeats), effort)
        if timing(few).median > CLEARLY * best:
            return few
        return few + self._measure(call, prepare, max(1, effort.repeats - RACED), effort)

    def turns(
        self, calls: Mapping[Choice, Call], prepare: Mapping[Choice, Call], effort: Effort
    ) -> dict[Choice, tuple[float, ...]]:
        names = {str(choice): choice for choice in calls}
        found = measure(
            {name: calls[choice] for name, choice in names.items()},
            device=self.device,
            warmup=1,
            repeats=effort.rounds,
            budget_seconds=effort.final_seconds,
            prepare={name: prepare[choice] for name, choice in names.items()},
            clock=self.clock,
        )
        return {names[name]: each.samples for name, each in found.items()}

    def _measure(self, call: Call, prepare: Call, repeats: int, effort: Effort) -> tuple[float, ...]:
        found = measure(
            {"call": call},
            device=self.device,
            warmup=1,
            repeats=repeats,
            budget_seconds=effort.seconds,
            prepare={"call": prepare},
            clock=self.clock,
        )
        return found["call"].samples


@dataclass(frozen=True)
class Injected:
    """By a function such as `triton.testing.do_bench`, whose median is one sample; what prepares a call is timed."""

    do_bench: Callable[..., Any]

    def sample(self, call: Call, prepare: Call, best: float, effort: Effort) -> tuple[float, ...]:
        def prepared() -> None:
            prepare()
            call()

        found = self.do_bench(prepared, quantiles=(0.5, 0.2, 0.8))
        return (float(found[0] if isinstance(found, Sequence) else found),)

    def turns(
        self, calls: Mapping[Choice, Call], prepare: Mapping[Choice, Call], effort: Effort
    ) -> dict[Choice, tuple[float, ...]]:
        rounds = [
            {choice: self.sample(call, prepare[choice], math.inf, effort)[0] for choice, call in calls.items()}
            for _ in range(TURNS)
        ]
        return {choice: tuple(each[choice] for each in rounds) for choice in calls}


@dataclass
class KernelSearch:
    """configurations: by choice, the default first. call, prepare: launch one, and what comes before it, not timed.

    known: what is known of them already. record: keeps new outcomes. deadline: of time.monotonic(), for all but what
    is needed to decide at all.
    """

    problem: Problem
    configurations: Mapping[Choice, Mapping[str, Any]]
    call: Callable[[Choice], Call]
    prepare: Callable[[Choice], Call]
    buffers: Buffers
    bench: Bench
    known: dict[Choice, Known]
    record: Callable[[Mapping[Choice, Outcome], str | None], None]
    effort_name: str = "quick"
    strategy: str | None = None
    seed: int = 0
    deadline: float = math.inf
    check: bool = True
    expected: Any = field(default=None, init=False)  # what the default writes, once it has run
    in_time: bool = field(default=True, init=False)
    poisoned: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.effort = effort(self.effort_name)
        self.default = next(iter(self.configurations))
        self.checked: set[Choice] = set()

    def run(self) -> Decision:
        """Measure what is not known, compare the best, decide; the buffers are as they were before."""
        gc.collect()
        gc.freeze()  # a collection, before every measurement, need not look at what is there to stay
        try:
            self._measure(self.default)
            self._others()
            finals = self._finals()
        finally:
            gc.unfreeze()
            if not self.poisoned:
                self.buffers.reset()
        return decide(self.problem, self.default, finals, self.known, self.seed)

    def _others(self) -> None:
        choices = list(self.configurations)
        space = space_of([self.configurations[choice] for choice in choices])
        quota = min(len(choices), EVALUATIONS[self.effort_name])
        strategy = made(self.strategy or ("exhaustive" if quota == len(choices) else None), space, self.seed)
        for number, choice in enumerate(choices):
            if choice in self.known:
                strategy.tell(number, self.known[choice].milliseconds)
        while len(strategy.results) < quota:
            if time.monotonic() > self.deadline:
                self.in_time = False
                return
            if (asked := strategy.ask()) is None:
                return
            strategy.tell(asked, self._measure(choices[asked]))

    def _measure(self, choice: Choice) -> float | None:
        if choice not in self.known:
            outcome = self._tried(choice)
            self._take({choice: outcome}, None)
        return self.known[choice].milliseconds

    def _tried(self, choice: Choice) -> Outcome:
        began = time.monotonic()
        try:
            if reason := self._wrong(choice):
                return Outcome(Kind.WRONG, message=reason)
            best = min(valid(self.known).values(), default=math.inf)
            samples = self.bench.sample(self.call(choice), self.prepare(choice), best, self.effort)
        except Exception as error:
            return self._failed(choice, error)
        if not all(math.isfinite(sample) for sample in samples):
            return Outcome(Kind.CRASHED, message="its benchmark gave no time")
        return Outcome(Kind.TIMED, samples, seconds=time.monotonic() - began)

    def _wrong(self, choice: Choice) -> str | None:
        """Run it once on the arguments as they were, and hold what it writes against the default's."""
        self.checked.add(choice)
        self.buffers.reset()
        self.prepare(choice)()
        self.call(choice)()
        if not self.check or not self.buffers.whole:
            return None
        if choice == self.default:
            self.expected = self.buffers.written()
            return None
        return None if self.expected is None else self.buffers.difference(self.expected)

    def _failed(self, choice: Choice, error: Exception) -> Outcome:
        outcome = of_exception(error)
        if poisons(error):  # nothing more can be computed on this device by this process
            self.poisoned = True
            self._take({choice: outcome}, None)
            error.add_note(f"while trying {choice} of {self.problem.operation}; it will not be tried again")
            raise error
        return outcome

    def _take(self, outcomes: Mapping[Choice, Outcome], turns: str | None) -> None:
        self.record(outcomes, turns)
        for choice, each in outcomes.items():
            median = timing(each.samples).median if each.samples else None
            self.known[choice] = Known(each, median, turns)

    def _finals(self) -> dict[Choice, Known]:
        """The default and the fastest few, in turns."""
        mark = self.effort_name if self.in_time else CUT
        turns = f"{mark}/{signature(self.configurations)}/{uuid.uuid4().hex[:12]}"
        for _ in range(TRIES):
            some = [*fastest(valid(self.known), self.effort.finalists)]
            if self.default not in some and self.known[self.default].milliseconds is not None:
                some.append(self.default)
            failed = {self.default: self.known[self.default].outcome}
            outcomes = self._compared(some) if some else failed
            if outcomes is not None:
                self._take(outcomes, turns)
                return {choice: self.known[choice] for choice in outcomes}
        raise RuntimeError(f"{self.problem.operation}: finalists fail one after the other; see what was recorded.")

    def _compared(self, some: Sequence[Choice]) -> dict[Choice, Outcome] | None:
        """None where one of them failed, which is recorded."""
        for choice in sorted(some, key=lambda choice: choice != self.default):
            if choice in self.checked:  # those that were known from before are not, and may not run here
                continue
            try:
                reason = self._wrong(choice)
                failed = Outcome(Kind.WRONG, message=reason) if reason else None
            except Exception as error:
                failed = self._failed(choice, error)
            if failed is not None:
                self._take({choice: failed}, None)
                return None
        self.buffers.reset()
        found = self.bench.turns(
            {choice: self.call(choice) for choice in some},
            {choice: self.prepare(choice) for choice in some},
            self.effort,
        )
        return {choice: Outcome(Kind.TIMED, samples) for choice, samples in found.items()}


def choice_of(values: Mapping[str, Any]) -> Choice:
    """A configuration by name; a value that is no plain one, such as a dtype, as it prints."""
    return Choice.of(IMPLEMENTATION, {name: value if _plain(value) else str(value) for name, value in values.items()})


def signature(configurations: Mapping[Choice, Any]) -> str:
    """A hash of the default and of all there is to choose among."""
    default, *others = configurations
    text = repr((default, sorted(map(str, others))))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def thorough(turns: str, effort_name: str) -> bool:
    """Whether a comparison ended a search of as much effort."""
    mark = turns.partition("/")[0]
    return mark in EVALUATIONS and EVALUATIONS[mark] >= EVALUATIONS[effort_name]


def space_of(configurations: Sequence[Mapping[str, Any]]) -> TuningSpace:
    """The given configurations as a space, in their order; what one of them does not say is a value of its own."""
    names = list(dict.fromkeys(name for each in configurations for name in each))
    rows = [[dict(choice_of(each).configuration).get(name, "none") for name in names] for each in configurations]
    values = {name: list(dict.fromkeys(row[column] for row in rows)) for column, name in enumerate(names)}
    places = [[values[name].index(row[column]) for column, name in enumerate(names)] for row in rows]
    if len({tuple(row) for row in places}) < len(places):  # equal but for what cannot be compared, such as a hook
        values["number"] = list(range(len(places)))
        places = [[*row, number] for number, row in enumerate(places)]
    return TuningSpace(values, np.array(places))


def _plain(value: Any) -> bool:
    return isinstance(value, bool | int | float | str)


def made(name: str | None, space: TuningSpace, seed: int) -> strategies.Strategy:
    """The strategy of that name, its first proposal the first configuration. Without SciPy the default is another."""
    try:
        return strategies.make(name or strategies.DEFAULT, space, seed, first=(0,))
    except ImportError:
        if name is not None:
            raise
        return strategies.make("local_search", space, seed, first=(0,))
