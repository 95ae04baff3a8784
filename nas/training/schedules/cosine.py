"""A linear warm-up, then a decrease along half a cosine.

I. Loshchilov and F. Hutter 2017, "SGDR", https://arxiv.org/abs/1608.03983, without restarts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from nas.options import Fraction
from nas.training.schedules.registry import Steps, counted, schedule, warming


@schedule("cosine")
@dataclass(frozen=True, kw_only=True)
class Cosine:
    """warmup: a fraction of all steps, or from 1 on a number of steps. floor: the part of the rate left at the end."""

    warmup: Steps = 0.1
    floor: Fraction = 0.1

    def rate(self, peak: float, step: int, horizon: int) -> float:
        warmup = counted(self.warmup, horizon)
        rising = warming(peak, step, warmup)
        if rising is not None:
            return rising
        way = min(1.0, (step - warmup + 1) / max(1.0, horizon - warmup))
        return peak * (self.floor + (1 - self.floor) * 0.5 * (1 + math.cos(math.pi * way)))
