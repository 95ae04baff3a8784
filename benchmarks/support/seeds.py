"""Small problems of every operation on a CPU, and the check of its implementations on many random inputs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kernels.dispatch.registry import Implementation, Problem, Value, operation
from kernels.rowwise import rows
from tuner.measure import correctness

# Flags that no small named problem has.
FLAGS: dict[str, dict[str, Value]] = {"layer_norm": {"residual": True}, "linear_cross_entropy": {"bias": True}}
FEW = {"batch": 2, "heads": 2, "groups": 1, "sequences": 3}
COUNTS = ("batch", "rows", "length", "queries", "keys", "sequences")  # sizes that may be zero
LONG, WIDE = 18, 6  # two tiles of the Triton kernels, the second one partly filled; a part of one tile


@functools.cache
def small(name: str, dtype: str = "float32", gradients: bool = True, long: int = WIDE, **changes: int) -> Problem:
    """The smallest named problem of an operation for a CPU, with smaller sizes; some of them may be given."""
    found = operation(name)
    problem = min(found.problems("cpu").values(), key=lambda each: (not _trains(each), sum(n for _, n in each.sizes)))
    most = {**dict.fromkeys((*COUNTS, "positions"), long), **FEW}
    sizes = {size: min(number, most.get(size, WIDE)) for size, number in problem.sizes} | changes
    flags: dict[str, Value] = {**dict(problem.flags), **FLAGS.get(name, {}), "gradients": gradients}
    return replace(problem, dtype=dtype, sizes=tuple(sizes.items()), flags=tuple((n, flags[n]) for n in found.flags))


def _trains(problem: Problem) -> bool:
    return bool(dict(problem.flags).get("gradients", False))


def ways(problem: Problem) -> dict[str, Callable[..., Any]]:
    """What to call of every implementation that runs here, by name, without `compiled`: it is the definition, and to
    compile it takes longer than all others.
    """
    return {
        each.name: functools.partial(each.call, **each.default)
        for each in operation(problem.operation).implementations.values()
        if _runs(each, problem)
    }


def _runs(each: Implementation, problem: Problem) -> bool:
    """Whether an implementation can run a problem; a Triton kernel runs in the interpreter."""
    reason = each.refuses(problem)
    return each.name != "compiled" and (reason is None or (reason == rows.needs_gpu(problem) and rows.triton_is_here()))


def reasons(problem: Problem, seed: int, calls: dict[str, Callable[..., Any]]) -> dict[str, str]:
    """Why the correctness check rejects implementations on the inputs of a seed, by name; empty if it accepts all."""
    made = correctness.trial(operation(problem.operation), problem, seed)
    found = {name: correctness.differences(made, call, correctness.dtype_of(problem)) for name, call in calls.items()}
    return {name: reason for name, reason in found.items() if reason is not None}


def check(name: str, dtype: str, triton: bool, seeds: range) -> tuple[list[str], list[str]]:
    """(names of the implementations of an operation that were checked, a line for each that was rejected).

    triton: whether to check the Triton kernels, which take ten times as long in the interpreter, or all others.
    """
    problem = small(name, dtype, long=LONG if dtype == "float32" else WIDE)
    here = operation(name).choices(problem)
    calls = {way: call for way, call in ways(problem).items() if (way not in here) == triton}
    found = ((seed, reasons(problem, seed, calls)) for seed in seeds) if calls else ()
    lines = [f"{way} in {dtype}, seed {seed}: {reason}" for seed, each in found for way, reason in each.items()]
    return list(calls), lines
