"""Is a candidate better than a baseline? A difference of means, its interval, and the plain word that follows from it.

Everything here is to be minimised. Welch 1947, "The generalization of 'Student's' problem when several different
population variances are involved", https://doi.org/10.1093/biomet/34.1-2.28; with `paired`, Student's interval of the
differences seed by seed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, variance
from typing import Literal

Word = Literal["better", "worse", "no difference shown"]


@dataclass(frozen=True)
class Verdict:
    """`difference`: mean of the candidate minus mean of the baseline, between `low` and `high` with this `confidence`.

    The bounds are infinite when there are too few runs to tell; `reason` then says so.
    Without runs `difference` is NaN.
    """

    word: Word
    difference: float
    low: float
    high: float
    confidence: float
    runs: tuple[int, int]  # of the candidate, of the baseline
    reason: str = ""

    def sentence(
        self, what: str = "the metric", candidate: str = "the candidate", baseline: str = "the baseline"
    ) -> str:
        """The verdict for people, with the number of runs it rests on."""
        head = {"better": "better than", "worse": "worse than"}.get(self.word, "no difference shown from")
        opening = f"{candidate}: {head} {baseline}"
        if self.reason:
            seen = (
                "" if math.isnan(self.difference) else f" (difference of the means in {what}: {self.difference:+.4g})"
            )
            return f"{opening}: {self.reason}{seen}."
        return (
            f"{opening}. Difference in {what}: {self.difference:+.4g}, {self.confidence:.0%} interval "
            f"{self.low:+.4g} to {self.high:+.4g}, lower is better, from {self.runs[0]} and {self.runs[1]} runs."
        )


def compare(
    candidate: Sequence[float], baseline: Sequence[float], *, confidence: float = 0.95, paired: bool = False
) -> Verdict:
    """Judge the runs of a candidate against those of a baseline; `paired`: run i of both had the same seed.

    "better" when the whole interval is below zero, "worse" when it is above, else "no difference shown". A run that
    ended without a finite value is no number to average, so ValueError; so are paired lists of different lengths.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie between 0 and 1, but got {confidence}.")
    if not all(map(math.isfinite, [*candidate, *baseline])):
        raise ValueError("every run needs a finite value: leave failed runs out, and say that they failed.")
    if paired and len(candidate) != len(baseline):
        raise ValueError(f"paired runs must come in pairs, but got {len(candidate)} and {len(baseline)}.")
    runs = len(candidate), len(baseline)
    difference = fmean(candidate) - fmean(baseline) if all(runs) else math.nan
    if min(runs) < 2:
        reason = f"an interval needs two runs of each, but there are {runs[0]} and {runs[1]}"
        return Verdict("no difference shown", difference, -math.inf, math.inf, confidence, runs, reason)
    error, freedom = _paired(candidate, baseline) if paired else _welch(candidate, baseline)
    margin = _quantile(confidence, freedom) * error if error else 0.0
    low, high = difference - margin, difference + margin
    word: Word = "better" if high < 0 else "worse" if low > 0 else "no difference shown"
    return Verdict(word, difference, low, high, confidence, runs)


def rank_correlation(one: Sequence[float], other: Sequence[float]) -> float:
    """Spearman's rank correlation, -1 to 1; NaN when either does not vary or there are fewer than two values."""
    from scipy.stats import rankdata

    if len(one) != len(other):
        raise ValueError(f"a correlation needs values in pairs, but got {len(one)} and {len(other)}.")
    if len(set(one)) < 2 or len(set(other)) < 2:
        return math.nan
    a, b = rankdata(one), rankdata(other)
    a, b = a - a.mean(), b - b.mean()
    return float((a @ b) / math.sqrt((a @ a) * (b @ b)))


def _welch(candidate: Sequence[float], baseline: Sequence[float]) -> tuple[float, float]:
    """The standard error of the difference, and its degrees of freedom (Welch and Satterthwaite)."""
    parts = [variance(values) / len(values) for values in (candidate, baseline)]
    total = sum(parts)
    if not total:
        return 0.0, math.inf
    spread = sum((part / total) ** 2 / (len(values) - 1) for part, values in zip(parts, (candidate, baseline)))
    return math.sqrt(total), 1 / spread


def _paired(candidate: Sequence[float], baseline: Sequence[float]) -> tuple[float, float]:
    differences = [a - b for a, b in zip(candidate, baseline, strict=True)]
    return math.sqrt(variance(differences) / len(differences)), len(differences) - 1


def _quantile(confidence: float, freedom: float) -> float:
    from scipy.stats import t  # slow to import, and most of `nas` does not need it

    return float(t.ppf((1 + confidence) / 2, freedom))
