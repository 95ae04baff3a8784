"""The median of a sample with a confidence interval that is valid for any distribution.

Half of all values lie below the true median, so the number of samples below it is Binomial(n, 1/2), and the k-th
smallest and k-th largest of n samples enclose it with probability 1 - 2 P(Binomial(n, 1/2) < k). Timings are skewed and
have outliers, so no normal distribution is assumed. David & Nagaraja 2003, "Order Statistics", section 7.1.

The binomial sums are exact integers. SciPy has the same (`scipy.stats.quantile_test`), but a machine that only measures
may lack SciPy, and importing it takes longer than all the sums of a session.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Interval:
    """A median and the interval that encloses the true one with probability `coverage`.

    If there are too few samples, `coverage` is below the requested confidence: six give 97 %, three 75 %.
    """

    median: float
    low: float
    high: float
    coverage: float


def median_interval(samples: Sequence[float], confidence: float = 0.95) -> Interval:
    """The median of independent `samples` and the narrowest symmetric order-statistic interval of that `confidence`.

    Raises ValueError without samples, and for a confidence outside (0, 1).
    """
    if not samples:
        raise ValueError("An interval needs at least one sample, but got none.")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie between 0 and 1, but got {confidence}.")
    ordered = sorted(samples)
    rank, coverage = _rank(len(ordered), confidence)
    return Interval(statistics.median(ordered), ordered[rank - 1], ordered[-rank], coverage)


def _rank(count: int, confidence: float) -> tuple[int, float]:
    """The largest k whose k-th smallest and k-th largest sample cover the median, and their coverage."""
    rank, below = 1, 1  # `below` counts the outcomes, of 2^count, with fewer than `rank` samples under the median
    while 2 * rank < count:
        more = below + math.comb(count, rank)
        if 1 - 2 * (more / 2**count) < confidence:
            break
        rank, below = rank + 1, more
    return rank, 1 - 2 * (below / 2**count)
