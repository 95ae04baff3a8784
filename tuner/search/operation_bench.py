"""Measures the choices of one of our operations in a child process, which may crash or hang."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence

from kernels.dispatch.registry import Choice, Operation, Problem
from tuner.measure import roofline
from tuner.measure.children import Children
from tuner.measure.measure import LEAST_ROUNDS
from tuner.measure.precompile import Precompiler
from tuner.measure.worker import Job
from tuner.outcome import Outcome
from tuner.search.bench import Bench
from tuner.search.effort import Effort

SHORTEST = 0.02  # seconds that a comparison takes at least, however late it is
LONG = 1.0  # seconds; with a budget, a definition that takes longer is not computed on a second set of inputs


class OperationBench(Bench):
    """The bench of one problem. Its first measurement must be the default."""

    def __init__(
        self,
        operation: Operation,
        problem: Problem,
        children: Children,
        precompiler: Precompiler,
        effort: Effort,
        seed: int,
    ) -> None:
        self.operation, self.problem = operation, problem
        self.children, self.precompiler = children, precompiler
        self.effort, self.seed = effort, seed
        self.definition_seconds: float | None = None  # that the first answer took apart from its check

    def measure(self, choice: Choice, best: float) -> Outcome:
        job = Job(self.problem, (choice,), self.seed, self.effort.repeats, self.effort.seconds, best)
        began, started, starting = time.monotonic(), self.children.started, self.children.starting_seconds
        (outcome,) = self.children.run(job)
        seconds = time.monotonic() - began
        if self.children.started > started:  # starting a child takes 20 s on a busy machine
            self.startup_seconds += seconds
        if self.definition_seconds is None:
            self.definition_seconds = seconds - outcome.seconds - (self.children.starting_seconds - starting)
        return outcome

    def compare(self, times: Mapping[Choice, float], more: int = 1) -> dict[Choice, Outcome]:
        left = self.children.left() - self._checks(times)
        seconds = max(min(self._turns(times, more), left), SHORTEST)
        new_inputs = (self.definition_seconds or 0.0) < LONG or self.effort.budget is None
        seed, rounds = self.seed + new_inputs, more * self.effort.rounds
        job = Job(self.problem, tuple(times), seed, rounds, seconds, least=_least(times))
        return dict(zip(times, self.children.run(job), strict=True))

    def comparison_seconds(self, times: Mapping[Choice, float], more: int = 1) -> float:
        return self._checks(times) + self._turns(times, more)

    def _turns(self, times: Mapping[Choice, float], more: int) -> float:
        return more * max(self.effort.final_seconds, (_least(times) + 1) * sum(times.values()) / 1e3)

    def _checks(self, choices: Iterable[Choice]) -> float:
        return sum(map(self.expected_seconds, choices))

    def bounds(self, choices: Sequence[Choice]) -> list[float]:
        return [roofline.bound(self.operation, self.problem, each, self.children.rates) for each in choices]

    def expected_seconds(self, choice: Choice) -> float:
        return self.children.expected(choice)

    def precompile(self, choices: Sequence[Choice]) -> None:
        self.precompiler.compile_next(self.problem, choices)


def _least(times: Mapping[Choice, float]) -> int:
    """Rounds of a comparison at least; a choice that has no other to win against needs no more than one."""
    return LEAST_ROUNDS if len(times) > 1 else 1
