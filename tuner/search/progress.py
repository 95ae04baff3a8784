"""What a tuning session tells while it runs, and at its end."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from kernels.dispatch.registry import Problem
from kernels.dispatch.table import Bucket
from tuner.device import Device
from tuner.search.decision import Decision


@dataclass(frozen=True)
class Progress:
    """The state of a session. best, default: milliseconds so far, None if unknown. left: estimated seconds to the end,
    None before there is an estimate. decision: set when the problem has just been decided."""

    problem: Problem
    number: int
    total: int
    measured: int
    best: float | None
    default: float | None
    left: float | None
    decision: Decision | None = None


@dataclass
class Report:
    """The result of a session. measured: new measurements. interrupted: by the user or by the budget. tried, possible:
    the configurations of all problems that were ever measured, and how many there are at most. unbuilt: the problems
    for which a choice that needs a compiler was not built in time. unfinished: the number of problems whose search has
    not ended. killed: measuring processes that were killed from outside, which took `killed_seconds`."""

    device: Device
    threads: int
    measured: int = 0
    seconds: float = 0.0
    decisions: list[Decision] = field(default_factory=list)
    undecided: list[Problem] = field(default_factory=list)
    buckets: list[Bucket] = field(default_factory=list)
    interrupted: bool = False
    tried: int = 0
    possible: int = 0
    unbuilt: int = 0
    unfinished: int = 0
    killed: int = 0
    killed_seconds: float = 0.0

    @property
    def regret(self) -> float | None:
        """The geometric mean of the expected regrets of all decisions."""
        known = [math.log(each.regret) for each in self.decisions if each.regret is not None]
        return math.exp(sum(known) / len(known)) if known else None
