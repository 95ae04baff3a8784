"""Maps values to pixels, and chooses round values for the ticks of an axis."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from dashboards.figures.figure import Axis

MOST = 1e290  # of an end of an axis: the length of an axis with margins must be finite


@dataclass(frozen=True)
class Scale:
    """Maps values between `low` and `high` to pixels between `start` and `end`."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high, at = (math.log10(each) if self.log else each for each in (self.low, self.high, value))
        return self.start + (at - low) / ((high - low) or 1.0) * (self.end - self.start)

    def shows(self, value: float) -> bool:
        """Whether the value is between the ends."""
        return self.low <= value <= self.high

    def ticks(self, most: int = 7) -> list[float]:
        """Round values between the ends, about `most` of them at most."""
        if self.log:
            first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
            for parts in ((1, 2, 5), (1, 3), (1,)):
                found = [part * 10.0**power for power in range(first, last + 1) for part in parts]
                inside = [each for each in found if self.shows(each)]
                if len(inside) <= most:
                    break
            every = math.ceil(len(inside) / most)
            return inside[::every] if len(inside) >= 2 else replace(self, log=False).ticks(most)
        span = self.high - self.low
        if not span > 0:
            return [self.low]
        rough = 10.0 ** math.floor(math.log10(span / most))
        step = next(rough * each for each in (1, 2, 5, 10) if span / (rough * each) <= most)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [each * step for each in range(first, last + 1)]


def scale_of(axis: Axis, values: Iterable[float | None], start: float, end: float) -> Scale:
    """A scale that shows all these values, with a margin at both ends, or the bounds of the axis."""
    if axis.categories:
        return Scale(-0.5, len(axis.categories) - 0.5, start, end)
    known = [each for each in values if each is not None and math.isfinite(each) and (each > 0 or not axis.log)]
    low, high = axis.bounds or ((min(known), max(known)) if known else (1.0, 10.0) if axis.log else (0.0, 1.0))
    low, high = max(low, -MOST), min(high, MOST)
    log = axis.log and low > 0
    if axis.bounds is None:
        if log:
            low = max(low, 1 / MOST)
            room = max(10 ** (0.04 * (math.log10(high) - math.log10(low))), 1.02)
            low, high = low / room, high * room
        else:
            room = 0.04 * (high - low) or abs(high) * 0.04 or 0.5
            low, high = low - room, high + room
    return Scale(low, high, start, end, log)
