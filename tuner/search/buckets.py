"""Few configurations for many problems: the smallest set within a bound on the loss that a greedy search finds.

The loss of a problem is the relative extra time of the best choice in the set, compared with the best known choice.
Each step adds the choice that brings most problems within the bound; among several, the one with the smallest total
loss. A bucket never spans more than a factor of two in any size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kernels.dispatch import table
from kernels.dispatch.registry import Choice, Problem
from kernels.dispatch.table import Bucket

BOUND = 0.05


def buckets(times: Mapping[Problem, Mapping[Choice, float]], bound: float = BOUND) -> list[Bucket]:
    """Choices that serve all problems within `bound`; times: measured milliseconds, by problem and choice."""
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
        for choice, some in served.items()
        for problems in _close(some)
    ]


def _close(problems: Sequence[Problem]) -> list[list[Problem]]:
    """The problems in groups in which no size differs by more than `table.BOUND`, in the order of their sizes."""
    groups: list[list[Problem]] = []
    for problem in sorted(problems, key=lambda each: each.sizes):
        fitting = (group for group in groups if table.span([*group, problem]) <= table.BOUND)
        group = next(fitting, None)
        if group is None:
            groups.append(group := [])
        group.append(problem)
    return groups
