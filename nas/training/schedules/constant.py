"""A linear warm-up, then a constant rate."""

from __future__ import annotations

from dataclasses import dataclass

from nas.training.schedules.registry import Steps, counted, schedule, warming


@schedule("constant")
@dataclass(frozen=True, kw_only=True)
class Constant:
    """warmup: a fraction of all steps, or from 1 on a number of steps."""

    warmup: Steps = 0.1

    def rate(self, peak: float, step: int, horizon: int) -> float:
        rising = warming(peak, step, counted(self.warmup, horizon))
        return peak if rising is None else rising
