"""How much a search measures."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Effort:
    """evaluations: configurations measured of an implementation; all of them if there are at most `whole`. repeats,
    seconds: samples of each, and the most time they may take. finalists, rounds, final_seconds: the same for the
    comparison in turns. budget: seconds for all problems together, None for no limit. longest: seconds that the first
    check of an implementation may take."""

    name: str
    evaluations: int
    whole: int
    repeats: int
    seconds: float
    finalists: int
    rounds: int
    final_seconds: float
    budget: float | None
    longest: float


EFFORTS = {
    each.name: each
    for each in (
        Effort("none", 0, 0, 0, 0.0, 0, 0, 0.0, 0.0, 0.0),
        Effort("quick", 5, 8, 7, 0.04, 2, 15, 0.3, 140.0, 30.0),
        Effort("full", 80, 120, 20, 0.3, 5, 61, 4.0, None, 180.0),
    )
}


def effort(name: str) -> Effort:
    """The effort called `name`. Raises ValueError that lists the valid names."""
    if name not in EFFORTS:
        raise ValueError(f"effort must be one of {', '.join(EFFORTS)}, but got {name!r}.")
    return EFFORTS[name]


def rank(name: str) -> int:
    """The place of an effort in the order of efforts; -1 for any other name."""
    return list(EFFORTS).index(name) if name in EFFORTS else -1
