"""The search of one problem: what to measure of it, and the comparison that decides.

Implementation by implementation, each beginning with its documented configuration; those that are slow get fewer tries,
and a strategy of `tuner.strategies` proposes the others. What cannot be as fast as the best, by the roofline of the
device, is not tried, and what can be fastest comes first. The fastest few and the default are checked on new inputs
(unless there is a budget and the definition takes long) and timed once more, in turns, and only that comparison
decides. What a compiler must look at for seconds may wait until every problem of the session is decided.
"""

from __future__ import annotations

import math
import time
import zlib
from collections.abc import Callable, Sequence

from kernels.dispatch.registry import Choice, Implementation, Operation, Problem
from tuner import strategies
from tuner.measure import roofline
from tuner.measure.ahead import Ahead, compiles
from tuner.measure.children import Children
from tuner.measure.worker import CLEARLY, Job
from tuner.outcome import Outcome
from tuner.search import abroad, candidates
from tuner.search.decision import Decision, decide
from tuner.search.effort import Effort
from tuner.search.notebook import Notebook, fastest, valid

SLOW = 2  # configurations tried of an implementation that is clearly slower than the best
HOPELESS = 6  # configurations of an implementation that fail, all of them, before it is given up
TRIES = 3  # comparisons, when finalists turn out to be wrong
CUT = "cut"  # the mark of a decision that lack of time hurried
COMPARED = 0.02  # seconds that a comparison takes at least, however late it is
LONG = 1.0  # seconds of a definition that is not computed twice where there is a budget
ROUNDS = 7  # of a comparison at least, where they are long; fewer could tell nothing


class Search:
    """Until `deadline`, of time.monotonic(), for what is not needed to decide at all."""

    def __init__(
        self,
        operation: Operation,
        problem: Problem,
        *,
        notebook: Notebook,
        children: Children,
        ahead: Ahead,
        effort: Effort,
        seed: int,
        deadline: float,
        tell: Callable[..., None],
        builds_later: bool = False,
    ) -> None:
        self.operation, self.problem, self.notebook, self.children = operation, problem, notebook, children
        self.effort, self.deadline, self.tell = effort, deadline, tell
        self.ahead = ahead
        self.seed = zlib.crc32(f"{seed} {problem}".encode())
        self.known = notebook.known(operation, problem)
        self.default = operation.default_choice(problem)
        self.in_time = True
        self.definition = 0.0  # seconds that the first answer took besides its check
        self.several = candidates.implementations(operation, problem)
        self.waiting = [each for each in self.several if builds_later and each.builds]

    @property
    def pending(self) -> list[Choice]:
        """What waits, and is not known."""
        return [choice for choice in map(candidates.first, self.waiting) if choice not in self.known]

    def run(self) -> None:
        """Measure what is not known, as far as effort and time go."""
        several = [each for each in self.several if each not in self.waiting]
        for choice in (self.default, *map(candidates.first, several)):
            self.measure(choice)
        times = valid(self.known)
        for each in sorted(several, key=lambda each: times.get(candidates.first(each), math.inf)):
            self._configurations(each)
        self._winners_of_others()
        for choice in fastest(valid(self.known), 1):
            fewer = candidates.on_one_thread(choice, self.problem, self.notebook.threads)
            if fewer is not None:
                self.measure(fewer)

    def build(self) -> bool:
        """Measure what waits -> whether it may win, so that the problem must be decided anew."""
        before = self.best
        for choice in self.pending:
            self.measure(choice)
        times = valid(self.known)
        built = (times.get(candidates.first(each), math.inf) for each in self.waiting)
        return min(built, default=math.inf) <= before * CLEARLY

    def measure(self, choice: Choice) -> float | None:
        """Milliseconds of `choice`, measured unless it is known; None where it failed, or time is up."""
        if choice not in self.known:
            expected = self.children.patience.expected(choice.implementation)
            if choice != self.default and time.monotonic() + expected > self.deadline:
                self.in_time = False
                return None
            best = self.best
            if choice != self.default and self._bounds([choice])[0] > best:
                return None
            job = Job(self.problem, (choice,), self.seed, self.effort.repeats, self.effort.seconds, best)
            began, started = time.monotonic(), self.children.started
            (outcome,) = self.children.run(job)
            if self.children.started > started:  # loading a child, 20 s on a busy machine, is no fault of the problem's
                self.deadline += time.monotonic() - began
            if choice == self.default:
                self.definition = time.monotonic() - began - outcome.seconds
            self.notebook.write(self.operation, self.problem, {choice: outcome})
            self.tell()
        return self.known[choice].milliseconds

    @property
    def best(self) -> float:
        """Milliseconds of the fastest so far."""
        return min(valid(self.known).values(), default=math.inf)

    def _bounds(self, choices: Sequence[Choice]) -> list[float]:
        """Milliseconds that each takes at least on this device; 0 where nothing is known of it."""
        return [roofline.bound(self.operation, self.problem, each, self.children.rates) for each in choices]

    def _configurations(self, implementation: Implementation) -> None:
        space = candidates.space(implementation, self.problem)
        if space is None:
            return
        choices = [candidates.choice(implementation, space.configuration(number)) for number in range(len(space))]
        bounds = self._bounds(choices)
        quota = len(space) if len(space) <= self.effort.whole else self.effort.evaluations
        times = valid(self.known)
        own = min((times[choice] for choice in choices if choice in times), default=math.inf)
        if math.isfinite(own) and own > CLEARLY**2 * min(times.values()):
            quota = min(SLOW, quota)
        hints = abroad.hints(self.notebook, self.operation, implementation, self.problem, space)
        name = "exhaustive" if quota == len(space) else strategies.DEFAULT
        first = roofline.promising(bounds) if hints is None else ()
        strategy = strategies.make(name, space, self.seed, first, hints)
        for number, choice in enumerate(choices):
            if choice in self.known:
                strategy.tell(number, self.known[choice].milliseconds)
        sure = range(len(choices)) if quota == len(space) else first  # to be tried
        while len(strategy.results) < quota and (asked := strategy.ask()) is not None:
            if compiles(implementation.files):
                left = (choices[each] for each in sure if choices[each] not in self.known)
                self.ahead.compile_next(self.problem, left)
            milliseconds = self.measure(choices[asked])
            if choices[asked] not in self.known and bounds[asked] <= self.best:
                return
            strategy.tell(asked, milliseconds)
            if strategy.best is None and len(strategy.results) >= HOPELESS:
                return

    def _winners_of_others(self) -> None:
        """What is fastest for other problems of the operation may be so for this one."""
        for other in self.notebook.decided(self.operation):
            if other.dtype == self.problem.dtype and other != self.problem:
                for choice in fastest(valid(self.notebook.known(self.operation, other)), 1):
                    try:
                        self.operation.check(choice, self.problem)
                    except ValueError:
                        continue
                    self.measure(choice)

    def finals(self, *, hurried: bool) -> Decision:
        """Check and time the fastest few and the default once more, in turns, and decide.

        hurried: when the deadline cut the search, the decision is not final: a later session goes on.
        """
        name = CUT if hurried and (self.pending or not self.in_time) else self.effort.name
        mark = f"{name}/{candidates.signature(self.operation, self.problem)}"
        for _ in range(TRIES):
            outcomes = self._compared()
            turns = self.notebook.write(self.operation, self.problem, outcomes, mark)
            if all(outcome.samples for outcome in outcomes.values()) or not valid(self.known):
                break
        assert turns is not None
        finals = self.notebook.finals(self.operation, self.problem)[turns]
        return decide(self.problem, self.default, finals, self.known, self.seed)

    def _compared(self) -> dict[Choice, Outcome]:
        some = list(fastest(valid(self.known), self.effort.finalists))
        if self.default not in some and self.known[self.default].milliseconds is not None:
            some.append(self.default)
        if not some:
            return {self.default: self.known[self.default].outcome}
        times = valid(self.known)
        wanted = max(self.effort.final_seconds, (ROUNDS + 1) * sum(times[choice] for choice in some) / 1e3)
        seconds = max(min(wanted, self.children.left()), COMPARED)
        new = self.definition < LONG or self.effort.budget is None
        job = Job(self.problem, tuple(some), self.seed + new, self.effort.rounds, seconds)
        return dict(zip(some, self.children.run(job), strict=True))
