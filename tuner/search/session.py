"""Tuning a list of problems: measure unknown configurations, and decide which one serves each problem.

Every result is written as soon as it is measured. Known results are not measured again, and a problem is skipped if it
has a decision among the same candidates with at least as much effort. With a budget, one problem of each operation is
searched first, each other is decided among the default and what was fast there, and then those are searched too, as
long as there is time (`tuner.search.plan`). Implementations that need seconds of compilation are measured when all
problems have a decision, and the problems that they may win are decided again. Problems whose comparison was disturbed
are then compared again in more rounds, as long as there is time. No session exceeds its budget.
"""

from __future__ import annotations

import math
import os
import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

import torch

from kernels.dispatch.device import Device, fingerprint
from kernels.dispatch.registry import Choice, Operation, Problem, operation
from tuner.measure.children import Children, Disturbed, Patience, TimeIsUp
from tuner.measure.precompile import WAITING, Precompiler, build_choice, building_processes
from tuner.measure.worker import Settings
from tuner.measure.worker import load as load_file
from tuner.search import candidates, plan, transfer
from tuner.search.cache import Cache, Known, cache_of, valid
from tuner.search.candidates import OperationCandidates
from tuner.search.decision import Decision, decide
from tuner.search.effort import Effort, effort
from tuner.search.operation_bench import OperationBench
from tuner.search.results import Results
from tuner.search.search import OPEN, Search

SEARCH = 0.7  # of a problem's share of the budget; the rest is for the comparison of the finalists
MORE = (3, 9)  # times as many rounds as the effort says, in the comparisons that settle it
BUILDS = 0.5  # of the budget, and whatever else is left, for implementations that need seconds of compilation


@dataclass(frozen=True)
class Progress:
    """The state of a session. best, default: milliseconds so far, None if unknown. left: estimated seconds to the end,
    None before there is an estimate. decision: set when the problem has just been decided."""

    problem: Problem
    number: int
    total: int
    measured: int
    best: float | None
    default: float | None
    left: float | None
    decision: Decision | None = None


@dataclass
class Report:
    """The result of a session. measured: new measurements. interrupted: by the user or by the budget. tried, possible:
    the configurations of all problems that were ever measured, and how many there are at most. unbuilt: the problems
    for which a choice that needs a compiler was not built in time. unfinished: the number of problems whose search has
    not ended. killed: measuring processes that were killed from outside, which took `killed_seconds`."""

    device: Device
    threads: int
    measured: int = 0
    seconds: float = 0.0
    decisions: list[Decision] = field(default_factory=list)
    undecided: list[Problem] = field(default_factory=list)
    interrupted: bool = False
    tried: int = 0
    possible: int = 0
    unbuilt: int = 0
    unfinished: int = 0
    killed: int = 0
    killed_seconds: float = 0.0

    @property
    def regret(self) -> float | None:
        """The geometric mean of the expected regrets of all decisions."""
        known = [math.log(each.regret) for each in self.decisions if each.regret is not None]
        return math.exp(sum(known) / len(known)) if known else None


def tune(
    problems: Mapping[str, Sequence[Problem]],
    *,
    store: Results | None = None,
    device: str = "cpu",
    effort: str = "quick",
    budget_seconds: float | None = None,
    seed: int = 0,
    threads: int | None = None,
    load: Iterable[str] = (),
    patience: Patience | None = None,
    listener: Callable[[Progress], None] | None = None,
    again: bool = False,
) -> Report:
    """Tune the problems of each operation, by its name, on `device`.

    store: where measurements are read from and written to; without it they are forgotten at the end.
    budget_seconds: for all problems; by default the budget of the effort. threads: of torch on a CPU; by default
    torch's own number. load: files that register operations. again: repeat known measurements. An interrupt ends the
    session early and keeps its measurements. Raises ValueError for an unknown operation, effort or device.
    """
    session = Session(store, device, effort, budget_seconds, seed, threads, tuple(load), patience, listener)
    with session.children, session.precompiler, session.builder:
        return session.run(problems, again)


class Session:
    """One run of the tuner. Raises as `tune` does."""

    def __init__(
        self,
        store: Results | None,
        device: str,
        effort_name: str,
        budget_seconds: float | None,
        seed: int,
        threads: int | None,
        load: tuple[str, ...],
        patience: Patience | None,
        listener: Callable[[Progress], None] | None,
    ) -> None:
        self.effort: Effort = effort(effort_name)
        for path in load:
            load_file(path)
        self.seed = seed
        threads = threads or torch.get_num_threads()
        self.listener = listener or (lambda progress: None)
        self.report = Report(fingerprint(device), threads)
        self.results = Results() if store is None else store
        self.caches: dict[str, Cache] = {}
        own = self.effort.budget
        self.hurried = budget_seconds is not None and (own is None or budget_seconds < own)
        self.budget = own if budget_seconds is None else budget_seconds
        self.began = time.monotonic()
        self.searches: dict[Problem, Search] = {}
        self.seconds: list[float] = []  # of each search
        longest = self.effort.longest or 60.0
        settings = Settings(device, threads, load, _memory_limit())
        self.children = Children(settings, patience or Patience(longest=longest, definition=4 * longest))
        self.precompiler = Precompiler(settings)
        self.builder = Precompiler(settings, building_processes(device), build_choice)
        self.children.end = math.inf if self.budget is None else self.began + self.budget

    def run(self, problems: Mapping[str, Sequence[Problem]], again: bool = False) -> Report:
        """Tune every problem, one after the other; again: ignore earlier measurements of them."""
        work = [(operation(name), problem) for name, some in problems.items() for problem in some]
        for found, problem in work if again else ():
            self._cache(found).forget(problem)
        undecided = [each for each in work if self._decided(*each) is None or self._may_be_tried_again(*each)]
        try:
            if self.effort.evaluations and self.budget is None:
                for number, (found, problem) in enumerate(undecided):
                    self._tune(found, problem, number, len(undecided))
            elif self.effort.evaluations:
                self._tune_in_time(undecided)
            self._build()
            self._settle()
        except TimeIsUp:
            pass
        except KeyboardInterrupt:
            self.report.interrupted = True
        for found, problem in work:
            decision = self._newest(found, problem)
            if decision is not None:
                self.report.decisions.append(decision)
            else:
                self.report.undecided.append(problem)
        if self.effort.evaluations:
            self.report.unfinished = sum(self._decided(*each) is None for each in work)
        self.report.interrupted |= bool(self.report.undecided) and self.effort.evaluations > 0
        self.report.measured = self._measured
        self.report.unbuilt = sum(bool(each.worth_building()) for each in self.searches.values())
        self.report.killed, self.report.killed_seconds = self.children.killed, self.children.killed_seconds
        self.report.tried = sum(len(self._cache(found).known(problem)) for found, problem in work)
        self.report.possible = sum(candidates.possible(found, problem) for found, problem in work)
        self.report.seconds = time.monotonic() - self.began
        return self.report

    def _cache(self, found: Operation) -> Cache:
        if found.name not in self.caches:
            self.caches[found.name] = cache_of(self.results, found, self.report.device, self.report.threads)
        return self.caches[found.name]

    @property
    def _measured(self) -> int:
        return sum(each.written for each in self.caches.values())

    def _decided(self, found: Operation, problem: Problem) -> Decision | None:
        """The decision of the newest comparison of the same candidates, with no less effort; None without one."""
        finals = self._cache(found).compared(problem, candidates.signature(found, problem), self.effort.name)
        return None if finals is None else self._decision(found, problem, finals)

    def _may_be_tried_again(self, found: Operation, problem: Problem) -> bool:
        """Whether a choice failed in a way that may have been temporary, and effort allows to try it again."""
        known = self._cache(found).known(problem).values()
        return self.effort.evaluations > 0 and any(each.may_be_tried_again for each in known)

    def _preliminary(self, found: Operation, problem: Problem) -> Decision | None:
        """The decision of the newest comparison of any kind; None without one."""
        finals = list(self._cache(found).finals(problem).values())
        return self._decision(found, problem, finals[-1]) if finals else None

    def _newest(self, found: Operation, problem: Problem) -> Decision | None:
        return self._decided(found, problem) or self._preliminary(found, problem)

    def _decision(self, found: Operation, problem: Problem, finals: Mapping[Choice, Known]) -> Decision:
        return decide(problem, found.default_choice(problem), finals, self._cache(found).known(problem), self.seed)

    def _tune_in_time(self, undecided: Sequence[tuple[Operation, Problem]]) -> None:
        """Search a few problems, decide the others quickly, and search those too while there is time."""
        operations = {problem: found for found, problem in undecided}
        first, second, rest = plan.order(list(operations))
        every = [*first, *second, *rest]
        weights = [plan.SEARCHED] * len(first) + [1.0] * (len(every) - len(first))
        for number, problem in enumerate(every):
            if self._left() <= 0:
                return
            if number < len(first):
                share = weights[number] / sum(weights[number:])
                self._tune(operations[problem], problem, number, len(every), share)
            elif self._preliminary(operations[problem], problem) is None:
                self._compare_likely(operations[problem], problem, number, every)
        slow = [*_slowest_first(self.searches, second), *_slowest_first(self.searches, rest)]
        for number, problem in enumerate(slow):
            left = self._left() - BUILDS * (self.budget or 0.0)
            if left <= 0:
                return
            share = max(1 / len(slow[number:]), min(self._mean_seconds / left, 1.0))
            self._tune(operations[problem], problem, len(every) - 1, len(every), share)

    def _compare_likely(self, found: Operation, problem: Problem, number: int, order: Sequence[Problem]) -> None:
        """Decide a problem among its default and what was fast on the most similar problems."""
        for later in order[number : number + plan.AHEAD]:
            there = operation(later.operation)
            some = [there.default_choice(later), *plan.likely(there, later, self._cache(there))]
            triton = [each for each in some if there.implementations[each.implementation].is_triton]
            self.precompiler.compile_next(later, triton)
        search = self._search(found, problem, math.inf)
        with suppress(Disturbed):
            decision = search.compare_likely(plan.likely(found, problem, self._cache(found)))
            self._report_progress(found, problem, number, len(order), decision)
            self.searches[problem] = search

    def _tune(self, found: Operation, problem: Problem, number: int, total: int, share: float | None = None) -> None:
        """Search a problem. share: of the time that is left, without that for builds."""
        left = self._left() if self.budget is None else self._left() - BUILDS * self.budget
        began = time.monotonic()
        deadline = began + SEARCH * max(left, 0.0) * (1 / (total - number) if share is None else share)
        report = partial(self._report_progress, found, problem, number, total)
        search = self._search(found, problem, deadline, report)
        with suppress(Disturbed):  # the problem stays undecided, and the same command continues with it
            report(search.run())
            self.searches[problem] = search
        self.seconds.append(time.monotonic() - began - search.bench.startup_seconds)

    @property
    def _mean_seconds(self) -> float:
        """Of the searches so far."""
        return sum(self.seconds) / max(len(self.seconds), 1)

    def _search(
        self,
        found: Operation,
        problem: Problem,
        deadline: float,
        report: Callable[..., object] = lambda decision=None: None,
    ) -> Search:
        seed = zlib.crc32(f"{self.seed} {problem}".encode())
        cache = self._cache(found)
        return Search(
            OperationCandidates(found, problem),
            OperationBench(found, problem, self.children, self.precompiler, self.effort, seed),
            cache,
            self.effort,
            seed=seed,
            hints=partial(transfer.from_other_devices, cache, problem),
            deadline=deadline,
            hurried=self.hurried,
            builds_later=self.budget is not None,
            on_progress=report,
        )

    def _build(self) -> None:
        """Measure what needs compilation: the slowest problem of each operation first, and last where a build lost."""
        waiting = _in_turns([each for each in self.searches.values() if each.pending])
        while waiting:
            count = max(self.builder.most, 1)
            some, waiting = waiting[:count], waiting[count:]
            late = self._compile([(search.problem, search.worth_building()) for search in some])
            lost = {each.problem.operation for each in some if each.problem in late or not self._built(each)}
            waiting.sort(key=lambda search: search.problem.operation in lost)  # and otherwise in the same order

    def _compile(self, builds: Iterable[tuple[Problem, Sequence[Choice]]]) -> set[Problem]:
        """Compile in other processes, and wait for them: nothing is timed meanwhile -> problems that took too long."""
        for problem, choices in builds:
            self.builder.compile_next(problem, choices)
        late = self.builder.wait(min(WAITING * self.children.patience.longest, self.children.left()))
        return {problem for problem, _ in late}

    def _built(self, search: Search) -> bool:
        """Measure what is pending; whether it may win, or could not be measured."""
        search.deadline = self.children.end - self.effort.final_seconds - search.bench.startup_seconds
        with suppress(Disturbed):
            may_win = search.build()
            if may_win or (self.hurried and not search.pending):
                search.on_progress(search.decide())
            return may_win or bool(search.pending)
        return True

    def _settle(self) -> None:
        """Compare again, in more rounds, where another choice may be clearly faster: the largest risk first.

        Seven rounds of slow candidates cannot tell two apart if one of them is disturbed, and then the default stays.
        And what was timed alone may have been disturbed, so that it was not compared. A comparison starts
        only if it can end within the session, because the earlier one may have had more rounds.
        """
        disturbed: set[Problem] = set()
        for more in MORE:
            for search in self._open():
                if search.problem not in disturbed and search.comparison_seconds(more) < self._left():
                    try:
                        search.on_progress(search.decide(more))
                    except Disturbed:
                        disturbed.add(search.problem)

    def _open(self) -> list[Search]:
        decisions = [self._newest(operation(problem.operation), problem) for problem in self.searches]
        some = sorted((each for each in decisions if each is not None), key=lambda each: -each.risk)
        found = [self.searches[each.problem] for each in some if each.risk > OPEN]
        return [*found, *(each for each in self.searches.values() if each.rivals and each not in found)]

    def _report_progress(
        self, found: Operation, problem: Problem, number: int, total: int, decision: Decision | None = None
    ) -> None:
        times = valid(self._cache(found).known(problem))
        elapsed, done = time.monotonic() - self.began, number + (decision is not None)
        left = min(elapsed / done * (total - done), max(self._left(), 0.0)) if done else None
        best, default = min(times.values(), default=None), times.get(found.default_choice(problem))
        self.listener(Progress(problem, number + 1, total, self._measured, best, default, left, decision))

    def _left(self) -> float:
        return math.inf if self.budget is None else self.budget - (time.monotonic() - self.began)


def _slowest_first(searches: Mapping[Problem, Search], problems: Sequence[Problem]) -> list[Problem]:
    """The problems that were compared, as `_in_turns`, then the others."""
    known = [each.problem for each in _in_turns([searches[problem] for problem in problems if problem in searches])]
    return [*known, *(problem for problem in problems if problem not in searches)]


def _in_turns(searches: Sequence[Search]) -> list[Search]:
    """The slowest problem of every operation, then the next of each: the slowest have the most to gain."""
    turns: dict[str, int] = {}
    placed = []
    for search in sorted(searches, key=lambda each: -each.best):
        name = search.problem.operation
        turns[name] = turns.get(name, 0) + 1
        placed.append((turns[name], search))
    return [search for _, search in sorted(placed, key=lambda pair: pair[0])]


def _memory_limit() -> int | None:
    """Bytes that a child may take: most of what is free now; None if the system does not say."""
    try:
        free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    except (ValueError, OSError):
        return None
    return max(int(0.8 * free), 2 * 2**30)
