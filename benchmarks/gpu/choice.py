"""Finds the fastest choice for a case of `benchmarks.gpu`, in this process, and writes it into the operation's table.

The tuner's correctness check computes the definition in float64, which needs too much memory for some published shapes.
Here a candidate is compared with the first correct implementation in the dtype of the problem. The operation is then
called in the normal way, and uses the choice in the table.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from kernels.dispatch import registry, tuned
from kernels.dispatch.device import fingerprint
from kernels.dispatch.registry import Choice, Problem
from kernels.dispatch.table import Entry
from tuner import strategies
from tuner.measure.measure import measure
from tuner.outcome import of_exception, poisons
from tuner.search import candidates, tables

FIRST = 3  # samples of a candidate
ROUNDINGS = 16  # the tolerance, in units of the dtype's precision times the typical size: both results are rounded


class Run:
    """Calls on the arguments of one problem; learns: with gradients. The gradients of the outputs are made once."""

    def __init__(self, arguments: Any, learns: bool) -> None:
        self.arguments, self.learns = arguments, learns
        self.leaves = [x for x in pytree.tree_leaves(arguments) if isinstance(x, Tensor) and x.requires_grad]
        self.gradients: list[Tensor] | None = None

    def __call__(self, call: Callable[..., Any]) -> Any:
        """The outputs of `call`, and the gradients if there are any."""
        args, kwargs = self.arguments
        out = call(*args, **kwargs)
        if not self.learns:
            return out
        some = [x for x in pytree.tree_leaves(out) if isinstance(x, Tensor) and x.requires_grad]
        if self.gradients is None:
            self.gradients = [torch.ones_like(each) for each in some]
        return out, torch.autograd.grad(some, self.leaves, self.gradients, allow_unused=True)


def differs(found: Any, expected: Any, dtype: torch.dtype) -> str | None:
    """How two results differ by more than rounding; None if they do not. Additional results are ignored."""
    ours, theirs = ([x for x in pytree.tree_leaves(each) if isinstance(x, Tensor)] for each in (found, expected))
    for one, other in zip(ours, theirs):
        if one.shape != other.shape:
            return f"it has shape {tuple(one.shape)} instead of {tuple(other.shape)}"
        scale = other.float().square().mean().sqrt().item()
        worst = (one.float() - other.float()).abs().sub_(other.float().abs(), alpha=ROUNDINGS * torch.finfo(dtype).eps)
        if not worst.max().item() <= ROUNDINGS * torch.finfo(dtype).eps * scale:
            return f"it differs by {worst.max().item():.3g} where values are about {scale:.3g}"
    return None


def choose(
    problem: Problem, run: Run, device: str, *, evaluations: int, seconds: float
) -> tuple[dict[Choice, float], dict[Choice, str]]:
    """Milliseconds of every correct candidate, and the reason why each other candidate failed.

    evaluations: configurations of each implementation. seconds: for all of them; the defaults are always measured.
    """
    operation = registry.operation(problem.operation)
    until = time.monotonic() + seconds
    default = operation.default_choice(problem)
    times: dict[Choice, float] = {}
    failed: dict[Choice, str] = {}
    expected: Any = None

    def attempt(choice: Choice) -> float | None:
        nonlocal expected
        if choice in times or choice in failed:
            return times.get(choice)

        def call(*args: Any, **kwargs: Any) -> Any:
            return tuned.launch(operation, problem, choice, *args, **kwargs)

        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = run(call)
                if expected is None:
                    expected = found
                elif reason := differs(found, expected, getattr(torch, problem.dtype)):
                    failed[choice] = f"wrong: {reason}"
                    return None
                del found
                calls = {"call": lambda: run(call)}
                times[choice] = measure(calls, device=device, warmup=1, repeats=FIRST)["call"].median
        except Exception as error:
            if poisons(error):
                raise
            failed[choice] = of_exception(error).message
        return times.get(choice)

    attempt(default)
    several = candidates.implementations(operation, problem)
    for each in several:
        attempt(Choice.of(each.name, each.default_for(problem)))
    for each in several:
        space = candidates.space(each, problem)
        if space is None:
            continue
        choices = [candidates.choice(each, space.configuration(number)) for number in range(len(space))]
        strategy = strategies.make_or_fall_back(None, space)
        for number, choice in enumerate(choices):
            if choice in times or choice in failed:
                strategy.tell(number, times.get(choice))
        while len(strategy.results) < min(evaluations, len(space)) and time.monotonic() < until:
            if (asked := strategy.ask()) is None:
                break
            strategy.tell(asked, attempt(choices[asked]))
    return times, failed


def serve(problem: Problem, choice: Choice, milliseconds: float) -> None:
    """Write `choice` into the table file of this machine's device."""
    operation = registry.operation(problem.operation)
    entry = Entry(problem, choice, milliseconds, operation.implementations[choice.implementation].source)
    there = [each for each in tuned.table(problem.device).entries.values() if each.problem != problem]
    about = fingerprint(problem.device)
    tables.write(
        tables.path_of(problem.device), [*there, entry], device=about.to_dict(), threads=torch.get_num_threads()
    )
    tuned.use(problem.device, None)


def fastest(times: dict[Choice, float], implementation: str | None = None) -> Choice | None:
    """The fastest choice of all, or of one implementation; None if there is none."""
    some = {choice: ms for choice, ms in times.items() if implementation in (None, choice.implementation)}
    return min(some, key=lambda choice: some.get(choice, math.inf)) if some else None
