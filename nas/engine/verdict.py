"""Is a candidate better than a baseline? The difference of their means, its interval, and a verdict in one word.

All values are to be minimised. Welch 1947, "The generalization of 'Student's' problem when several different
population variances are involved", https://doi.org/10.1093/biomet/34.1-2.28; with `paired`, Student's interval of the
differences seed by seed. Both come from SciPy.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

Word = Literal["better", "worse", "no difference shown"]


@dataclass(frozen=True)
class Verdict:
    """`difference`: mean of the candidate minus mean of the baseline, between `low` and `high` with this `confidence`.

    If there are too few runs to tell, the bounds are infinite and `reason` says so. Without runs `difference` is NaN.
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
        """The verdict for people, with the numbers of runs."""
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
    """Compare the runs of a candidate with those of a baseline; `paired`: run i of both had the same seed.

    The word is "better" if the whole interval is below zero, "worse" if it is above, else "no difference shown".
    Raises ValueError if a run has no finite value, if paired lists differ in length, or if confidence is not in (0, 1).
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
    low, high = _interval(candidate, baseline, confidence, paired)
    word: Word = "better" if high < 0 else "worse" if low > 0 else "no difference shown"
    return Verdict(word, difference, low, high, confidence, runs)


def rank_correlation(one: Sequence[float], other: Sequence[float]) -> float:
    """Spearman's rank correlation, -1 to 1; NaN if one of them does not vary or there are fewer than two values.

    Raises ValueError if the lengths differ.
    """
    from scipy.stats import spearmanr

    if len(one) != len(other):
        raise ValueError(f"a correlation needs values in pairs, but got {len(one)} and {len(other)}.")
    if len(set(one)) < 2 or len(set(other)) < 2:
        return math.nan
    return float(spearmanr(one, other).statistic)


def _interval(
    candidate: Sequence[float], baseline: Sequence[float], confidence: float, paired: bool
) -> tuple[float, float]:
    """The confidence interval of the difference of the means: Welch's, or Student's of the pairs."""
    from scipy.stats import ttest_ind, ttest_rel  # half a second to import, and most commands need no verdict

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # about runs that are (almost) equal: the interval is short
        test = ttest_rel(candidate, baseline) if paired else ttest_ind(candidate, baseline, equal_var=False)
        interval = test.confidence_interval(confidence)
    return float(interval.low), float(interval.high)
