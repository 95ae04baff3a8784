"""The candidates of a problem: implementations, their configurations, and the number of threads on a CPU."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from kernels.dispatch.registry import THREADS, Choice, Configuration, Implementation, Operation, Problem
from tuner.outcome import Outcome
from tuner.search.cache import Cache, fastest, valid
from tuner.space import TuningSpace


@dataclass(frozen=True)
class Group:
    """The configurations of one implementation. first: the one to measure first. space, choices: all of them, by their
    number; None and empty if there is nothing to choose. compiled: by Triton, at the first call. builds: a compiler
    takes seconds at the first call. gives_up_after: failures in a row at the start, after which the rest is skipped.
    """

    first: Choice
    space: TuningSpace | None = None
    choices: Sequence[Choice] = ()
    compiled: bool = False
    builds: bool = False
    gives_up_after: float = float("inf")

    def numbers_of(self, known: Container[Choice]) -> list[tuple[int, Choice]]:
        """(number, choice) of the choices that are known, in order."""
        find = getattr(self.choices, "numbers_of", None)  # of choices that are not listed
        return find(known) if find else [pair for pair in enumerate(self.choices) if pair[1] in known]


class Candidates:
    """The candidates for a problem. signature: a hash of them; if it is equal, no candidate is new."""

    def __init__(self, problem: Problem, default: Choice, signature: str, groups: Sequence[Group]) -> None:
        self.problem, self.default, self.signature, self.groups = problem, default, signature, groups

    def includes(self, choice: Choice) -> bool:
        """Whether `choice`, which was measured before, is still a candidate."""
        return any(choice in group.choices or choice == group.first for group in self.groups)

    def is_valid(self, outcome: Outcome) -> bool:
        """Whether an outcome of an earlier search still holds."""
        return True

    def promising(self, cache: Cache) -> Sequence[Choice]:
        """Choices to measure right after the default."""
        return ()

    def further(self, cache: Cache) -> Iterator[Choice]:
        """Choices to measure after the groups; each is asked for when the one before is known."""
        return iter(())


HOPELESS = 6  # configurations of an implementation that fail, all of them, before it is given up


class OperationCandidates(Candidates):
    """The implementations of one of our operations, the default's first."""

    def __init__(self, operation: Operation, problem: Problem) -> None:
        groups = [group(each, problem) for each in implementations(operation, problem)]
        super().__init__(problem, operation.default_choice(problem), signature(operation, problem), groups)
        self.operation = operation

    def includes(self, choice: Choice) -> bool:
        """All whose code is still there: a bench refuses the ones that cannot run."""
        return True

    def further(self, cache: Cache) -> Iterator[Choice]:
        """The winners for other problems of the operation, then the fastest choice on one thread."""
        for other in cache.decided():
            if other.dtype == self.problem.dtype and other != self.problem:
                for choice in fastest(valid(cache.known(other)), 1):
                    try:
                        self.operation.check(choice, self.problem)
                    except ValueError:
                        continue
                    yield choice
        for choice in fastest(valid(cache.known(self.problem)), 1):
            single = on_one_thread(choice, self.problem, cache.threads or 1)
            if single is not None:
                yield single


def possible(operation: Operation, problem: Problem) -> int:
    """How many configurations a problem has at most: before the constraints."""
    return sum(math.prod(map(len, each.parameters.values())) for each in implementations(operation, problem))


def implementations(operation: Operation, problem: Problem) -> list[Implementation]:
    """The implementations that can run the problem, the default first."""
    default = operation.default(problem)
    names = sorted(operation.choices(problem), key=lambda name: name != default)
    return [operation.implementations[name] for name in names]


def group(implementation: Implementation, problem: Problem) -> Group:
    """The configurations of an implementation for a problem."""
    found = space(implementation, problem)
    return Group(
        Choice.of(implementation.name, implementation.default),
        found,
        [] if found is None else [choice(implementation, found.configuration(each)) for each in range(len(found))],
        compiled=implementation.is_triton,
        builds=implementation.builds,
        gives_up_after=HOPELESS,
    )


def space(implementation: Implementation, problem: Problem) -> TuningSpace | None:
    """The configurations that satisfy its constraints; None if there is nothing to choose."""
    if not implementation.parameters:
        return None
    keeps = partial(_allowed, implementation, problem)
    try:
        return TuningSpace.product(implementation.parameters, [keeps])
    except ValueError:  # none is left
        return None


def _allowed(implementation: Implementation, problem: Problem, configuration: Configuration) -> bool:
    whole = {**implementation.default, **configuration}
    return all(keeps(whole, problem) for keeps in implementation.constraints)


def choice(implementation: Implementation, configuration: Configuration) -> Choice:
    """The implementation with `configuration`; parameters that it leaves out have their default values."""
    return Choice.of(implementation.name, {**implementation.default, **configuration})


def on_one_thread(chosen: Choice, problem: Problem, threads: int) -> Choice | None:
    """The same choice on one thread; None if that is no other choice."""
    if problem.device != "cpu" or threads == 1 or THREADS in dict(chosen.configuration):
        return None
    return Choice.of(chosen.implementation, {**dict(chosen.configuration), THREADS: 1})


def signature(operation: Operation, problem: Problem) -> str:
    """A hash of all candidates; if it is equal, there is nothing new to measure."""
    found = [
        (each.name, each.source, sorted((name, list(values)) for name, values in each.parameters.items()))
        for each in implementations(operation, problem)
    ]
    text = json.dumps([found, str(operation.default_choice(problem))], default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
