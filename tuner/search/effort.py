"""How much is measured: `none` decides by what is known, `quick` is for a laptop in minutes, `full` for a device that
will be used for months."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Effort:
    """evaluations: configurations of an implementation, all of them where there are no more than `whole`. repeats,
    seconds: samples of each, and what they may take. finalists, rounds, final_seconds: of the comparison in pairs.
    budget: seconds for all problems together, None without a limit."""

    name: str
    evaluations: int
    whole: int
    repeats: int
    seconds: float
    finalists: int
    rounds: int
    final_seconds: float
    budget: float | None
    longest: float  # seconds that the first check of an implementation may take

    @property
    def rank(self) -> int:
        return list(EFFORTS).index(self.name)


EFFORTS = {
    each.name: each
    for each in (
        Effort("none", 0, 0, 0, 0.0, 0, 0, 0.0, 0.0, 0.0),
        Effort("quick", 5, 8, 7, 0.04, 2, 15, 0.3, 140.0, 30.0),
        Effort("full", 80, 120, 20, 0.3, 5, 61, 4.0, None, 180.0),
    )
}


def effort(name: str) -> Effort:
    """The effort called `name`. Raises ValueError naming all."""
    if name not in EFFORTS:
        raise ValueError(f"effort must be one of {', '.join(EFFORTS)}, but got {name!r}.")
    return EFFORTS[name]
