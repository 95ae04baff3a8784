"""A linear warm-up, a constant rate for most of the training, and a linear decrease at the end.

S. Hu et al. 2024, "MiniCPM", https://arxiv.org/abs/2404.06395, section 4.2.
"""

from __future__ import annotations

from dataclasses import dataclass

from nas.options import Fraction
from nas.training.schedules.registry import Steps, counted, schedule, warming


@schedule("warmup_stable_decay")
@dataclass(frozen=True, kw_only=True)
class WarmupStableDecay:
    """warmup, decay: a fraction of all steps, or from 1 on a number of steps. floor: the part of the rate left."""

    warmup: Steps = 0.1
    decay: Steps = 0.2
    floor: Fraction = 0.0

    def rate(self, peak: float, step: int, horizon: int) -> float:
        rising = warming(peak, step, counted(self.warmup, horizon))
        if rising is not None:
            return rising
        decay = max(1.0, counted(self.decay, horizon))
        way = min(1.0, max(0.0, (step - (horizon - decay)) / decay))
        return peak * (1 - (1 - self.floor) * way)
