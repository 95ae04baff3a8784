"""A linear warm-up, then a linear decrease."""

from __future__ import annotations

from dataclasses import dataclass

from nas.options import Fraction
from nas.training.schedules.registry import Steps, counted, schedule, warming


@schedule("linear")
@dataclass(frozen=True, kw_only=True)
class Linear:
    """warmup: a fraction of all steps, or from 1 on a number of steps. floor: the part of the rate left at the end."""

    warmup: Steps = 0.1
    floor: Fraction = 0.0

    def rate(self, peak: float, step: int, horizon: int) -> float:
        warmup = counted(self.warmup, horizon)
        rising = warming(peak, step, warmup)
        if rising is not None:
            return rising
        way = min(1.0, (step - warmup) / max(1.0, horizon - warmup))
        return peak * (1 - (1 - self.floor) * way)
