"""How far predictions are from measurements, and the interval that follows.

The sums of pieces share a systematic error. A factor corrects it: the median ratio over some architectures that were
measured as a whole. Each of those is also predicted with the factor of the others. These cross-checked errors, as
logarithms, give the interval of a prediction, which is the larger of two:

- Student's t with n - 1 degrees of freedom, times the root mean square of the errors. It is right for normal errors.
- The error at place 0.95 (n + 1) in the order of size: the jackknife (Barber, Candes, Ramdas & Tibshirani 2021,
  "Predictive inference with the jackknife+", Annals of Statistics 49). With 19 errors or more it is about right for any
  distribution. With fewer, this place is beyond the largest error, and the value is extrapolated: if a few errors are
  very large, 12 errors may cover 92 %, and 3 errors 83 %.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from functools import cached_property

CONFIDENCE = 0.95
PARTS = round(1 / (1 - CONFIDENCE))


@dataclass(frozen=True)
class CrossCheck:
    """ratios: measured latency over the sum of the pieces, for architectures that were measured as a whole."""

    ratios: tuple[float, ...]

    @property
    def is_enough(self) -> bool:
        """Whether there are enough architectures to tell an error."""
        return len(self.ratios) > 2

    @cached_property
    def factor(self) -> float:
        """The correction of a sum."""
        return statistics.median(self.ratios)

    @cached_property
    def errors(self) -> list[float]:
        """The error of each architecture if the others predict it: |log(measured / predicted)|, smallest first."""
        found = []
        for left_out, ratio in enumerate(self.ratios):
            others = [each for number, each in enumerate(self.ratios) if number != left_out]
            found.append(abs(math.log(ratio / statistics.median(others))))
        return sorted(found)

    @property
    def error(self) -> float:
        """The median of the errors, as a fraction; infinite with fewer than three architectures."""
        return math.expm1(statistics.median(self.errors)) if self.is_enough else math.inf

    @cached_property
    def spread(self) -> float:
        """The factor that the next error stays within with probability `CONFIDENCE`; there must be two ratios."""
        square = statistics.fmean(each * each for each in self.errors)
        if_normal = quantile(len(self.ratios) - 1) * math.sqrt(square)
        return math.exp(max(if_normal, statistics.quantiles(self.errors, n=PARTS)[-1]))


def quantile(freedom: int) -> float:
    """The factor of a two-sided interval of `CONFIDENCE` by Student's t: 4.30 for 2 degrees of freedom, 1.96 for many.

    Infinite below 1.
    """
    from scipy.special import stdtrit  # imported when an interval is computed

    return float(stdtrit(freedom, (1 + CONFIDENCE) / 2)) if freedom >= 1 else math.inf
