"""What there is to choose among for a problem: implementations, their configurations, and threads on a CPU."""

from __future__ import annotations

import hashlib
import json
from functools import partial

from kernels.dispatch.registry import THREADS, Choice, Configuration, Implementation, Operation, Problem
from tuner.space import TuningSpace


def implementations(operation: Operation, problem: Problem) -> list[Implementation]:
    """Those that can run the problem, that of the default first."""
    default = operation.default(problem)
    names = sorted(operation.choices(problem), key=lambda name: name != default)
    return [operation.implementations[name] for name in names]


def first(implementation: Implementation) -> Choice:
    """Its documented configuration."""
    return Choice.of(implementation.name, implementation.default)


def space(implementation: Implementation, problem: Problem) -> TuningSpace | None:
    """The configurations that its constraints allow; None where there is nothing to choose."""
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
    """`configuration` of it, what it does not say as by default."""
    return Choice.of(implementation.name, {**implementation.default, **configuration})


def on_one_thread(chosen: Choice, problem: Problem, threads: int) -> Choice | None:
    """The same on one thread; None where that is nothing else."""
    if problem.device != "cpu" or threads == 1 or THREADS in dict(chosen.configuration):
        return None
    return Choice.of(chosen.implementation, {**dict(chosen.configuration), THREADS: 1})


def signature(operation: Operation, problem: Problem) -> str:
    """A hash of all candidates: where it is the same, nothing is new."""
    found = [
        (each.name, each.source, sorted((name, list(values)) for name, values in each.parameters.items()))
        for each in implementations(operation, problem)
    ]
    text = json.dumps([found, str(operation.default_choice(problem))], default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
