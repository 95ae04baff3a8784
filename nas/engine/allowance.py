"""What an arm has spent and may spend: steps, tokens, FLOPs and device-seconds of training.

Only ended units count. A unit counts all steps from its start to its planned end, even if it failed. So a search in
which every trial fails still ends. What is spent follows from the study's log, so it is the same in every process and
after a restart.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from nas.config.schema import TRAINING, Budget
from nas.store import Unit, UnitKind
from nas.store.records import FAILED_SECONDS


@dataclass
class Allowance:
    """budget: of the whole search. share: of the arm. step_tokens: of one training step."""

    budget: Budget
    share: float
    step_tokens: int
    steps: int = 0
    tokens: float = 0.0
    flops: float = 0.0
    device_seconds: float = 0.0
    _steps: dict[int, int] = field(default_factory=dict)  # of each trial, so far

    def add(self, unit: Unit) -> None:
        """A unit of the arm ended."""
        seconds = unit.seconds or 0.0
        self.device_seconds += max(seconds, FAILED_SECONDS) if unit.values is None else seconds
        if unit.kind is not UnitKind.TRAIN:
            return
        before = self._steps.get(unit.number, 0)
        steps = max(0, unit.steps - before)
        self._steps[unit.number] = before + steps
        self.steps += steps
        self.tokens += steps * self.step_tokens
        self.flops += steps * (unit.step_flops or 0.0)

    @property
    def spent(self) -> str | None:
        """The limit that is spent, if one is."""
        limits = {name: getattr(self.budget, name) for name in TRAINING}
        over = (name for name, limit in limits.items() if limit and getattr(self, name) >= self.share * limit)
        return next(over, None)
