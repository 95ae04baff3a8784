"""Tuning: measure what is not known of the problems, and decide what serves each.

Everything is written as it is measured; what is known is not measured again, and a problem that was decided with the
same candidates, and with as much effort, is left alone. The budget is shared among the problems that are open: what one
does not need is there for the next. Where there is a budget, what a compiler must look at for seconds comes when all
problems are decided, and those that it may win are decided once more. No session outlives its budget.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch

from kernels.dispatch.registry import Choice, Operation, Problem, operation
from kernels.dispatch.table import Bucket, kind
from tuner.device import Device, fingerprint
from tuner.measure.ahead import Ahead
from tuner.measure.children import Children, Patience, TimeIsUp
from tuner.measure.worker import Settings
from tuner.measure.worker import load as load_file
from tuner.search import candidates
from tuner.search.buckets import buckets
from tuner.search.decision import Decision, decide
from tuner.search.effort import EFFORTS, Effort, effort
from tuner.search.notebook import Known, Notebook, valid
from tuner.search.search import Search

if TYPE_CHECKING:
    from nas.store import Store

SEARCH = 0.7  # of a problem's share of the budget; the rest is for the finalists
BUILDS = 0.3  # of the budget, and what else is left, for what a compiler must look at for seconds


@dataclass(frozen=True)
class Progress:
    """Where a session stands. left: seconds it may still take, None before anything can be said."""

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
    """What a session did. measured: measurements that were new. interrupted: by the user or the budget."""

    device: Device
    threads: int
    measured: int = 0
    seconds: float = 0.0
    decisions: list[Decision] = field(default_factory=list)
    undecided: list[Problem] = field(default_factory=list)
    buckets: list[Bucket] = field(default_factory=list)
    interrupted: bool = False

    @property
    def regret(self) -> float | None:
        """The geometric mean of the expected regrets of all decisions."""
        known = [math.log(each.regret) for each in self.decisions if each.regret is not None]
        return math.exp(sum(known) / len(known)) if known else None


def tune(
    problems: Mapping[str, Sequence[Problem]],
    *,
    store: Store | None = None,
    device: str = "cpu",
    effort: str = "quick",
    budget_seconds: float | None = None,
    seed: int = 0,
    threads: int | None = None,
    load: Iterable[str] = (),
    patience: Patience | None = None,
    listener: Callable[[Progress], None] | None = None,
) -> Report:
    """Tune the problems of each operation, by its name, on `device`.

    store: the study database that measurements are read from and written to; without it nothing is remembered.
    budget_seconds: for all of it; by default that of the effort. threads: of torch on a CPU; by default its own.
    load: files that register operations. An interrupt ends it early, with what is there. Raises ValueError for an
    unknown operation, effort or device.
    """
    session = Session(store, device, effort, budget_seconds, seed, threads, tuple(load), patience, listener)
    with session.children, session.ahead:
        return session.run(problems)


class Session:
    """One run of the tuner."""

    def __init__(
        self,
        store: Store | None,
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
        self.seed, self.device = seed, device
        threads = threads or torch.get_num_threads()
        self.listener = listener or (lambda progress: None)
        self.report = Report(fingerprint(device), threads)
        self.notebook = Notebook(store, self.report.device, threads)
        own = self.effort.budget
        self.hurried = budget_seconds is not None and (own is None or budget_seconds < own)
        self.budget = own if budget_seconds is None else budget_seconds
        self.began = time.monotonic()
        self.searches: list[Search] = []
        longest = self.effort.longest or 60.0
        settings = Settings(device, threads, load, _memory())
        self.children = Children(settings, patience or Patience(longest=longest, definition=4 * longest))
        self.ahead = Ahead(settings)
        self.children.end = math.inf if self.budget is None else self.began + self.budget

    def run(self, problems: Mapping[str, Sequence[Problem]]) -> Report:
        """Every problem, one after the other."""
        work = [(operation(name), problem) for name, some in problems.items() for problem in some]
        open_ = [(found, problem) for found, problem in work if self._decided(found, problem) is None]
        try:
            for number, (found, problem) in enumerate(open_):
                if self.effort.evaluations and self._left() > 0:
                    self._tune(found, problem, number, len(open_))
            self._build()
        except TimeIsUp:
            pass
        except KeyboardInterrupt:
            self.report.interrupted = True
        for found, problem in work:
            decision = self._decided(found, problem) or self._hasty(found, problem)
            if decision is not None:
                self.report.decisions.append(decision)
            else:
                self.report.undecided.append(problem)
        self._sweep({found.name: found for found, _ in work}.values())
        self.report.interrupted |= bool(self.report.undecided) and self.effort.evaluations > 0
        self.report.measured = self.notebook.written
        self.report.seconds = time.monotonic() - self.began
        return self.report

    def _decided(self, found: Operation, problem: Problem) -> Decision | None:
        """By the newest comparison of the same candidates with as much effort, if there is one."""
        signature = candidates.signature(found, problem)
        for turns, finals in reversed(self.notebook.finals(found, problem).items()):
            mark, _, rest = turns.partition("/")
            if mark in EFFORTS and EFFORTS[mark].rank >= self.effort.rank and rest.startswith(signature):
                return self._decision(found, problem, finals)
        return None

    def _hasty(self, found: Operation, problem: Problem) -> Decision | None:
        """By the newest comparison that had too little time, or too little effort."""
        finals = list(self.notebook.finals(found, problem).values())
        return self._decision(found, problem, finals[-1]) if finals else None

    def _decision(self, found: Operation, problem: Problem, finals: Mapping[Choice, Known]) -> Decision:
        known = self.notebook.known(found, problem)
        return decide(problem, found.default_choice(problem), finals, known, self.seed)

    def _tune(self, found: Operation, problem: Problem, number: int, total: int) -> None:
        left = self._left() if self.budget is None else self._left() - BUILDS * self.budget
        deadline = time.monotonic() + SEARCH * max(left, 0.0) / (total - number)

        def tell(decision: Decision | None = None) -> None:
            self._tell(found, problem, number, total, decision)

        search = Search(
            found,
            problem,
            notebook=self.notebook,
            children=self.children,
            ahead=self.ahead,
            effort=self.effort,
            seed=self.seed,
            deadline=deadline,
            tell=tell,
            builds_later=self.budget is not None,
        )
        search.run()
        tell(search.finals(hurried=self.hurried))
        self.searches.append(search)

    def _build(self) -> None:
        """What waited, an operation after the other, its slowest problem first."""
        waiting = [search for search in self.searches if search.pending]
        for search in _in_turns(waiting):
            search.deadline = self.children.end - self.effort.final_seconds
            may_win = search.build()
            if may_win or (self.hurried and not search.pending):
                search.tell(search.finals(hurried=self.hurried))

    def _tell(self, found: Operation, problem: Problem, number: int, total: int, decision: Decision | None) -> None:
        times = valid(self.notebook.known(found, problem))
        elapsed, done = time.monotonic() - self.began, number + (decision is not None)
        left = min(elapsed / done * (total - done), max(self._left(), 0.0)) if done else None
        best, default = min(times.values(), default=None), times.get(found.default_choice(problem))
        self.listener(Progress(problem, number + 1, total, self.notebook.written, best, default, left, decision))

    def _left(self) -> float:
        return math.inf if self.budget is None else self.budget - (time.monotonic() - self.began)

    def _sweep(self, operations: Iterable[Operation]) -> None:
        """Few configurations for all problems that were ever decided here, of each kind with several.

        Not what a compiler builds for each shape, which serves no other.
        """
        kinds: dict[tuple, dict[Problem, dict[Choice, float]]] = {}
        for found in operations:
            made = found.implementations
            for problem in self.notebook.decided(found):
                times = valid(self.notebook.known(found, problem))
                times = {each: ms for each, ms in times.items() if not made[each.implementation].builds}
                if times:
                    kinds.setdefault(kind(problem), {})[problem] = times
        for some in kinds.values():
            for each in buckets(some) if len(some) > 1 else ():
                implementation = operation(each.problems[0].operation).implementations[each.choice.implementation]
                self.report.buckets.append(replace(each, source=implementation.source))


def _in_turns(searches: Sequence[Search]) -> list[Search]:
    """The slowest problem of every operation, then the next of each: what is gained there is most."""
    turns: dict[str, int] = {}
    placed = []
    for search in sorted(searches, key=lambda each: -each.best):
        turns[search.operation.name] = turns.get(search.operation.name, 0) + 1
        placed.append((turns[search.operation.name], search))
    return [search for _, search in sorted(placed, key=lambda pair: pair[0])]


def _memory() -> int | None:
    """Bytes that a child may take: most of what is free now."""
    try:
        free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    except (ValueError, OSError):
        return None
    return max(int(0.8 * free), 2 * 2**30)
