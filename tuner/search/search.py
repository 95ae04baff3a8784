"""The search of one problem: which candidates to measure, and the comparison that decides.

It measures the default and the first configuration of every group (implementation), then searches the groups from the
fastest to the slowest: a strategy of `tuner.strategies` proposes configurations, clearly slower groups get fewer of
them, and configurations that cannot beat the best by the device's roofline are skipped. Then the fastest few and the
default are checked again and timed in turns, and only that comparison decides. Groups that need seconds of compilation
may wait until every problem of the session has a decision.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from kernels.dispatch.registry import Choice
from tuner import strategies
from tuner.measure import roofline
from tuner.measure.children import Disturbed
from tuner.measure.worker import CLEARLY
from tuner.outcome import TEMPORARY, Outcome
from tuner.search.bench import Bench, DeviceLost
from tuner.search.cache import Cache, Known, fastest, valid
from tuner.search.candidates import Candidates, Group
from tuner.search.decision import Decision, decide
from tuner.search.effort import Effort
from tuner.strategies.contract import Hints

SLOW = 2  # configurations measured of a group whose first ones are clearly slower than the best
TRIES = 3  # comparisons, if finalists turn out to be wrong
OPEN = 1.03  # the factor by which another choice may be faster, above which a decision is open
CUT = "cut"  # replaces the effort in the mark of a comparison that came early because time was short


class Search:
    """One search; hints: what other devices say of a group. deadline: of time.monotonic(); only what is needed for a
    decision is measured after it. hurried: if the deadline cuts the search short, a later session continues it.
    on_progress: called after each measurement."""

    def __init__(
        self,
        candidates: Candidates,
        bench: Bench,
        cache: Cache,
        effort: Effort,
        *,
        seed: int = 0,
        strategy: str | None = None,
        hints: Callable[[Group], Hints | None] = lambda group: None,
        deadline: float = math.inf,
        hurried: bool = True,
        builds_later: bool = False,
        on_progress: Callable[..., object] = lambda decision=None: None,
    ) -> None:
        self.candidates, self.bench, self.cache, self.effort = candidates, bench, cache, effort
        self.problem, self.default = candidates.problem, candidates.default
        self.seed, self.strategy, self.hints = seed, strategy, hints
        self.deadline, self.hurried, self.on_progress = deadline, hurried, on_progress
        self.in_time = True
        self.known = {
            each: known
            for each, known in cache.known(self.problem).items()
            if candidates.includes(each) and candidates.is_valid(known.outcome) and not known.may_be_tried_again
        }
        self.waiting = [group for group in candidates.groups if builds_later and group.builds]

    @property
    def pending(self) -> list[Choice]:
        """The first configurations of the groups that wait, except those that are known."""
        return [group.first for group in self.waiting if group.first not in self.known]

    @property
    def best(self) -> float:
        """Milliseconds of the fastest so far."""
        return min(valid(self.known).values(), default=math.inf)

    def run(self) -> Decision:
        """Measure unknown configurations, as far as effort and time allow, then decide."""
        self.bench.prepare()
        try:
            groups = [group for group in self.candidates.groups if group not in self.waiting]
            promising = self.candidates.promising(self.cache)
            for choice in (self.default, *promising, *(group.first for group in groups)):
                self.measure(choice)
            times = valid(self.known)
            for group in sorted(groups, key=lambda each: times.get(each.first, math.inf)):
                self._explore(group)
            for choice in self.candidates.further(self.cache):
                self.measure(choice)
            return self.decide()
        finally:
            self.bench.forget()

    def compare_likely(self, likely: Sequence[Choice]) -> Decision:
        """Decide among the default and a few other choices by one comparison, without a search."""
        self.in_time = False
        some = {}
        for choice in dict.fromkeys((self.default, *likely)):
            known = self.known.get(choice)
            if known is None or known.milliseconds is not None:
                some[choice] = 0.0 if known is None or known.milliseconds is None else known.milliseconds
        if not some:
            return self.run()
        self.bench.prepare()
        try:
            with self._keeping_the_last():
                alone = list(some) == [self.default]
                outcomes = (
                    {each: self.bench.measure(each, math.inf) for each in some} if alone else self.bench.compare(some)
                )
            finals = self._keep(outcomes, self._mark)
            return decide(self.problem, self.default, finals, self.known, self.seed)
        finally:
            self.bench.forget()

    def worth_building(self) -> list[Choice]:
        """The pending configurations that the roofline does not rule out."""
        return [choice for choice in self.pending if self.bench.bounds([choice])[0] <= self.best]

    def build(self) -> bool:
        """Measure the pending configurations; return True if any could be the new best."""
        for choice in self.pending:
            self.measure(choice)
        times = valid(self.known)
        return any(self._may_win(times.get(group.first, math.inf)) for group in self.waiting)

    def _may_win(self, milliseconds: float) -> bool:
        """Whether a time that was measured alone may be the best in turns: it is not clearly slower.

        Calls that are timed alone find their data in the caches, some twice as fast as in turns, so times of others
        that were measured alone do not rule it out.
        """
        return milliseconds <= CLEARLY * (self._best_in_turns or self.best)

    @property
    def _best_in_turns(self) -> float:
        """Milliseconds of the fastest of those that were compared; 0 if none was."""
        compared = [each.milliseconds for each in self.known.values() if each.turns and each.milliseconds is not None]
        return min(compared, default=0.0)

    def measure(self, choice: Choice) -> float | None:
        """Milliseconds of `choice`, measured unless known; None if it failed, cannot win, or time is up."""
        if choice not in self.known:
            if choice != self.default:
                if self._is_too_late(choice):
                    self.in_time = False
                    return None
                if self.bench.bounds([choice])[0] > self.best:
                    return None
            with self._keeping_the_last():
                outcome = self.bench.measure(choice, self.best)
            self._keep({choice: outcome})
            self.on_progress()
        return self.known[choice].milliseconds

    def decide(self, more: int = 1) -> Decision:
        """Check and time the fastest few and the default once more, in turns, and decide.

        more: times as many rounds as the effort says; then `rivals` are compared too. Raises Disturbed if one of them
        fails in a way that may be temporary: earlier decisions remain.
        """
        for tries in range(1, TRIES + 1):
            outcomes = self._compared(more)
            if more > 1 and any(outcome.kind in TEMPORARY for outcome in outcomes.values()):
                self._keep(outcomes)
                raise Disturbed(f"a finalist of {self.problem} failed in a way that may be temporary")
            complete = all(outcome.samples for outcome in outcomes.values()) or not valid(self.known)
            finals = self._keep(outcomes, self._mark if complete or tries == TRIES else None)
            if complete:
                break
        return decide(self.problem, self.default, finals, self.known, self.seed)

    @property
    def _mark(self) -> str:
        """Of a comparison in turns."""
        name = CUT if self.hurried and (self.pending or not self.in_time) else self.effort.name
        return f"{name}/{self.candidates.signature}"

    @property
    def rivals(self) -> list[Choice]:
        """A few choices that were timed alone only, in few samples. Their fastest sample is clearly faster than the
        best of those that were compared in turns."""
        lowest = {
            choice: min(each.outcome.samples)
            for choice, each in self.known.items()
            if not each.turns and each.outcome.samples
        }
        clearly = {choice: time for choice, time in lowest.items() if OPEN * time < self._best_in_turns}
        return list(fastest(clearly, self.effort.finalists))

    def comparison_seconds(self, more: int) -> float:
        """How long `decide` is likely to take."""
        return self.bench.comparison_seconds(self._finalists(more), more)

    def _finalists(self, more: int) -> dict[Choice, float]:
        """What to compare, and its milliseconds as far as known."""
        times = valid(self.known)
        built = [group.first for group in self.waiting if self._may_win(times.get(group.first, math.inf))]
        known = [choice for choice in (self.default, *built) if choice in times]
        rivals = self.rivals if more > 1 else []
        some = dict.fromkeys([*fastest(times, self.effort.finalists), *known, *rivals])
        return {choice: times[choice] for choice in some}

    def _compared(self, more: int) -> dict[Choice, Outcome]:
        some = self._finalists(more)
        if not some:
            return {self.default: self.known[self.default].outcome}
        with self._keeping_the_last():
            return self.bench.compare(some, more)

    @contextmanager
    def _keeping_the_last(self) -> Iterator[None]:
        """If the device is lost, keep the outcome of the choice that lost it, so that no process tries it again."""
        try:
            yield
        except DeviceLost as lost:
            self._keep({lost.choice: lost.outcome})
            lost.error.add_note(f"while trying {lost.choice} of {self.problem.operation}; it will not be tried again")
            raise lost.error from None

    def _keep(self, outcomes: dict[Choice, Outcome], mark: str | None = None) -> dict[Choice, Known]:
        self.cache.write(self.problem, outcomes, mark)
        found = self.cache.known(self.problem)
        new = {choice: found[choice] for choice in outcomes}
        self.known.update(new)
        return new

    def _is_too_late(self, choice: Choice) -> bool:
        deadline = self.deadline + self.bench.startup_seconds
        return time.monotonic() + self.bench.expected_seconds(choice) > deadline

    def _explore(self, group: Group) -> None:
        """Measure configurations of a group, as a strategy proposes them."""
        space, choices = group.space, group.choices
        if space is None:
            return
        bounds = self.bench.bounds(choices)
        quota = self._quota(group)
        hints = self.hints(group)
        first = roofline.promising(bounds) if hints is None else ()
        name = self.strategy or ("exhaustive" if quota == len(space) else None)
        strategy = strategies.make_or_fall_back(name, space, self.seed, first, hints)
        for number, choice in group.numbers_of(self.known):
            strategy.tell(number, self.known[choice].milliseconds)
        while len(strategy.results) < quota and (asked := strategy.ask()) is not None:
            if group.compiled:
                later = range(len(choices)) if quota == len(space) else strategy.upcoming(asked)
                next_ones = dict.fromkeys((asked, *later))
                self.bench.precompile([choices[each] for each in next_ones if choices[each] not in self.known])
            milliseconds = self.measure(choices[asked])
            if choices[asked] not in self.known and bounds[asked] <= self.best:
                return  # time is up
            strategy.tell(asked, milliseconds)
            if strategy.best is None and len(strategy.results) >= group.gives_up_after:
                return

    def _quota(self, group: Group) -> int:
        """How many configurations of a group to measure."""
        count = len(group.choices)
        quota = count if count <= self.effort.whole else self.effort.evaluations
        times = valid(self.known)
        own = min((times[choice] for _, choice in group.numbers_of(times)), default=math.inf)
        is_slow = math.isfinite(own) and own > CLEARLY**2 * min(times.values())
        return min(SLOW, quota) if is_slow else quota
