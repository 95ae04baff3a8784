"""Few configurations for many problems: the smallest set that a greedy search finds within a bound on the loss.

The loss of a problem is how much longer the best of the set takes than the best there is for it. Each step adds the
choice that brings most problems within the bound, and among those the one with the least loss in all.
"""

from __future__ import annotations

from collections.abc import Mapping

from kernels.dispatch.registry import Choice, Problem
from kernels.dispatch.table import Bucket

BOUND = 0.05


def buckets(times: Mapping[Problem, Mapping[Choice, float]], bound: float = BOUND) -> list[Bucket]:
    """Which choices serve all problems within `bound`; times: milliseconds of what was measured, by problem."""
    losses = {
        problem: {choice: milliseconds / min(known.values()) - 1 for choice, milliseconds in known.items()}
        for problem, known in times.items()
        if known
    }
    left, chosen = set(losses), list[Choice]()
    choices = sorted({choice for known in losses.values() for choice in known}, key=str)
    while left:

        def worth(choice: Choice, left: frozenset[Problem] = frozenset(left)) -> tuple[int, float]:
            within = [losses[problem][choice] for problem in left if losses[problem].get(choice, bound + 1) <= bound]
            return len(within), -sum(within)

        best = max(choices, key=worth)
        chosen.append(best)
        left = {problem for problem in left if losses[problem].get(best, bound + 1) > bound}
    served: dict[Choice, list[Problem]] = {choice: [] for choice in chosen}
    for problem, known in losses.items():
        served[min((choice for choice in chosen if choice in known), key=lambda choice: known[choice])].append(problem)
    return [
        Bucket(choice, tuple(problems), max(losses[problem][choice] for problem in problems))
        for choice, problems in served.items()
        if problems
    ]
