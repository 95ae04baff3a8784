"""Spearman's rank correlation with its interval.

The interval is that of Fisher's z, atanh(r). For ranks its variance is (1 + r^2 / 2) / (n - 3), not 1 / (n - 3): Bonett
and Wright 2000, "Sample size requirements for estimating Pearson, Kendall and Spearman correlations", Psychometrika
65, 23-28. It is deterministic. In simulations with 8 to 60 trials it covers as often as a percentile bootstrap, which
needs hundreds of resamples for each number that `nas status` prints; the test of this file repeats the simulation.

This is not SciPy's, because `nas status` starts in less time than the import of `scipy.stats` takes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, pstdev

CONFIDENCE = 0.95
LEAST = 5  # pairs; fewer say nothing


@dataclass(frozen=True)
class Correlation:
    """A rank correlation of `trials` pairs with its 95% interval."""

    value: float
    low: float
    high: float
    trials: int

    def __str__(self) -> str:
        value, low, high = (round(each, 2) + 0.0 for each in (self.value, self.low, self.high))  # no -0.00
        return f"{value:.2f} ({low:.2f} to {high:.2f})"


def correlation(xs: Sequence[float], ys: Sequence[float], confidence: float = CONFIDENCE) -> Correlation | None:
    """Spearman's rank correlation with its interval.

    None if there are fewer than 5 pairs, or all values of a side are equal. Raises ValueError if the lengths differ.
    """
    if len(xs) != len(ys):
        raise ValueError(f"Both sides must have as many values, but got {len(xs)} and {len(ys)}.")
    n = len(xs)
    value = _pearson(ranks(xs), ranks(ys)) if n >= LEAST else None
    if value is None:
        return None
    # If all ranks agree, z is infinite. The lower end is then that of the next smaller correlation, in which two
    # neighbours have changed places.
    most = 1 - 12 / (n * (n * n - 1))
    inside = min(max(value, -most), most)
    half = NormalDist().inv_cdf((1 + confidence) / 2) * math.sqrt((1 + inside * inside / 2) / (n - 3))
    low, high = math.tanh(math.atanh(inside) - half), math.tanh(math.atanh(inside) + half)
    return Correlation(value, -1.0 if value < -most else low, 1.0 if value > most else high, n)


def of_all(value: float, chosen: Iterable[int], xs: Mapping[int, float]) -> float:
    """The correlation of all trials, estimated from that of those that were chosen by their rank in `xs`.

    value: the correlation among `chosen`. xs: {trial: its first value} of all. The correction for a range that was cut
    (Thorndike 1949, "Personnel Selection", case 2; Pearson 1903), applied to normal scores, the places of the ranks in
    a normal distribution. It assumes that the second value depends linearly on the first, with equal noise everywhere.
    """
    places = ((rank - 0.5) / len(xs) for rank in ranks(list(xs.values())))
    score = dict(zip(xs, map(NormalDist().inv_cdf, places)))
    cut = pstdev(score[each] for each in chosen)
    wider = pstdev(score.values()) / cut if cut else 1.0
    return value * wider / math.sqrt(1 - value**2 + (value * wider) ** 2)


def ranks(values: Sequence[float]) -> list[float]:
    """The rank of each value, from 1; equal values share the mean of their ranks."""
    order = sorted(range(len(values)), key=lambda i: values[i])
    found = [0.0] * len(values)
    start = 0
    while start < len(order):
        end = start + 1  # NaN does not equal itself
        while end < len(order) and values[order[end]] == values[order[start]]:
            end += 1
        for place in order[start:end]:
            found[place] = (start + 1 + end) / 2
        start = end
    return found


def _pearson(xs: Sequence[float], ys: Sequence[float]) -> float | None:
    """Pearson's correlation; None if a side does not vary."""
    x, y = fmean(xs), fmean(ys)
    variances = sum((each - x) ** 2 for each in xs) * sum((each - y) ** 2 for each in ys)
    if not variances:
        return None
    together = sum((a - x) * (b - y) for a, b in zip(xs, ys)) / math.sqrt(variances)
    return min(max(together, -1.0), 1.0)
