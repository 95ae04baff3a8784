"""How a session with a short budget divides it: which problems to search first, and what to try on the others.

Problems of one operation mostly have similar fastest choices, above all those of one kind, which differ in their sizes
only. So one problem of each operation is searched first. Each of the others is decided by one comparison of its default
with what was fast on the most similar ones. Then there is a decision for every problem, and the time that is left goes
to searches of the others: first one of each kind, then the slowest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from kernels.dispatch import table
from kernels.dispatch.registry import Choice, Operation, Problem
from tuner.search.cache import Cache, fastest, valid

SEARCHED = 4.0  # the share of a problem that is searched, relative to one that is compared
LIKELY = 2  # choices compared with the default
CLOSE = 1.3  # times the fastest: the choices of a similar problem that may be the fastest here
AHEAD = 4  # problems whose choices are compiled while others are measured


def order(problems: Sequence[Problem]) -> tuple[list[Problem], list[Problem], list[Problem]]:
    """(one problem of each operation, one of each other kind, the rest); the one is in the middle of the sizes. The
    second and third are in order of size, because the checks of large problems take most of the time."""
    first = _middles(problems, lambda problem: problem.operation)
    kinds = {table.kind(each) for each in first}
    second = _middles([each for each in problems if table.kind(each) not in kinds], table.kind)
    chosen = {*first, *second}
    rest = [each for each in problems if each not in chosen]
    return first, sorted(second, key=_size), sorted(rest, key=_size)


def _middles(problems: Sequence[Problem], group: Callable[[Problem], Any]) -> list[Problem]:
    """The problem in the middle of each group, in order of size."""
    groups: dict[Any, list[Problem]] = {}
    for problem in problems:
        groups.setdefault(group(problem), []).append(problem)
    return [sorted(same, key=_size)[(len(same) - 1) // 2] for same in groups.values()]


def _size(problem: Problem) -> tuple[int, str]:
    product = 1
    for _, value in problem.sizes:
        product *= max(value, 1)
    return product, str(problem)


def likely(operation: Operation, problem: Problem, cache: Cache) -> list[Choice]:
    """The choices that were fastest on the most similar problems, without the default; no choice that takes seconds to
    compile for each shape."""
    found: dict[Choice, None] = {}
    for other in sorted((each for each in cache.decided() if each != problem), key=partial(_difference, problem)):
        times = valid(cache.known(other))
        best = min(times.values(), default=0.0)
        for choice in fastest(times, LIKELY):
            if times[choice] <= CLOSE * best and _can_run(operation, problem, choice):
                found[choice] = None
    found.pop(operation.default_choice(problem), None)
    return list(found)[:LIKELY]


def _difference(one: Problem, other: Problem) -> tuple[bool, int, float, str]:
    """Another dtype is far, then each other flag, then the largest factor between two sizes."""
    flags = len(set(one.flags) ^ set(other.flags))
    names = [name for name, _ in one.sizes] == [name for name, _ in other.sizes]
    return one.dtype != other.dtype, flags, table.distance(one, other) if names else math.inf, str(other)


def _can_run(operation: Operation, problem: Problem, choice: Choice) -> bool:
    made = operation.implementations.get(choice.implementation)
    if made is None or made.builds:
        return False
    try:
        operation.check(choice, problem)
    except ValueError:
        return False
    return True
