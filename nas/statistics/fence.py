"""Losses that are much larger than the others count as a limit, so that runs that diverged do not decide for all."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import quantiles

FENCE = 1.5  # interquartile ranges above the third quartile (Tukey 1977, "Exploratory Data Analysis")


def fence(values: Sequence[float]) -> float:
    """The largest value that counts as it is; infinite if there are too few to tell, or if it overflows."""
    if len(values) < 2:
        return math.inf
    first, _, third = quantiles(values, n=4, method="inclusive")
    return math.inf if math.isinf(first) else third + FENCE * (third - first)
