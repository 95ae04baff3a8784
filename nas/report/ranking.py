"""How well size, or a lower rung, predicts the quality of the trials of a search: Spearman's rank correlation.

The interval is that of Fisher's z, atanh(r). For ranks its variance is (1 + r^2 / 2) / (n - 3), not 1 / (n - 3): Bonett
and Wright 2000, "Sample size requirements for estimating Pearson, Kendall and Spearman correlations", Psychometrika
65, 23-28. It is deterministic. In simulations with 8 to 60 trials it covers as often as a percentile bootstrap, which
needs hundreds of resamples for each number that `nas status` prints; the test of this file repeats the simulation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from statistics import NormalDist, fmean
from typing import TYPE_CHECKING, Any

from searchspace.wording import plural

if TYPE_CHECKING:
    from nas.store import Reader, RungResult, Study

CONFIDENCE = 0.95
LEAST = 5  # trials; fewer say nothing
LEAST_SHOWN = 10  # trials of a rung that people are told about
EXPLAINS = 0.8  # size alone explains the ranking if the whole interval is beyond this number
MOST = 5000  # results that are read, the first ones of the study


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


@dataclass(frozen=True)
class SizeCorrelation:
    """The correlations of quality with size at one rung. Positive: larger models are better. None: too few trials."""

    steps: int
    trials: int
    parameters: Correlation | None
    flops: Correlation | None

    @property
    def known(self) -> dict[str, Correlation]:
        """The correlations that are known, by the name of the size."""
        both = {"parameters": self.parameters, "FLOPs": self.flops}
        return {name: each for name, each in both.items() if each}

    @property
    def explanation(self) -> str:
        """Whether size alone explains the ranking, in words; "" if it does not.

        It does if the whole interval is beyond 0.8. Of parameters and FLOPs the one that correlates more is named.
        """
        if not self.known:
            return ""
        name, found = max(self.known.items(), key=lambda each: abs(each[1].value))
        if found.low <= EXPLAINS and found.high >= -EXPLAINS:
            return ""
        better = "larger" if found.value > 0 else "smaller"
        return f"{name[0].upper()}{name[1:]} alone explain the ranking ({better} is better): rank correlation {found}."

    def sentence(self) -> str:
        """The correlations in words; "" if none is known."""
        if not self.known:
            return ""
        numbers = ", ".join(f"with {name} {each}" for name, each in self.known.items())
        trials = f"{plural(self.trials, 'trial')} at {plural(self.steps, 'step')}"
        said = f"Rank correlation of quality {numbers}; {trials}, 95% intervals."
        return f"{self.explanation}\n{said}".lstrip()


@dataclass(frozen=True)
class RungCorrelation:
    """The correlation of quality at one rung with quality at the next, over the trials that reached both."""

    steps: int
    next_steps: int
    correlation: Correlation

    def sentence(self) -> str:
        """The numbers in words."""
        return (
            f"Rank correlation of quality at {self.steps:,} and {plural(self.next_steps, 'step')}: {self.correlation}, "
            f"{plural(self.correlation.trials, 'trial')} that reached both."
        )


@dataclass(frozen=True)
class Ranking:
    """What predicts quality in a search. `sizes` has one entry a rung, `rungs` one for each rung and the next."""

    sizes: tuple[SizeCorrelation, ...]
    rungs: tuple[RungCorrelation, ...]

    @property
    def shown(self) -> SizeCorrelation | None:
        """The highest rung with enough trials to be told to people."""
        return next((each for each in reversed(self.sizes) if each.trials >= LEAST_SHOWN), None)

    @property
    def explained(self) -> str:
        """Whether size alone explains the ranking, in words; "" if it does not."""
        return self.shown.explanation if self.shown else ""

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "confidence": CONFIDENCE,
            "explained": self.explained,
            "sizes": [asdict(each) for each in self.sizes],
            "rungs": [asdict(each) for each in self.rungs],
            "sentences": self.sentences(),
        }

    def sentences(self) -> list[str]:
        """What people are told: about size at one rung, and about each rung and the next."""
        size = self.shown.sentence() if self.shown else ""
        return [each for each in (size, *(rung.sentence() for rung in self.rungs)) if each]


def ranking(store: Reader, study: Study) -> Ranking:
    """What predicts the first objective in the search of `study`, over its first 5,000 results."""
    objective = study.objectives[0]
    sign = 1 if objective["direction"].startswith("max") else -1
    return of_results(store.rung_results(study.id, objective["name"], MOST), sign)


def of_results(results: Sequence[RungResult], sign: int) -> Ranking:
    """The correlations of these results. sign: 1 if a larger value is better, -1 if a smaller one is."""
    rungs: dict[int, list[RungResult]] = {}
    for each in results:
        rungs.setdefault(each.steps, []).append(each)
    ordered = sorted(rungs.items())
    between = [
        RungCorrelation(steps, later, found)
        for (steps, here), (later, there) in pairwise(ordered)
        if (found := _of_both(here, there)) is not None
    ]
    return Ranking(tuple(_of_sizes(steps, some, sign) for steps, some in ordered), tuple(between))


def _of_sizes(steps: int, results: Sequence[RungResult], sign: int) -> SizeCorrelation:
    def with_size(size: Callable[[RungResult], float | None]) -> Correlation | None:
        pairs = [(of, sign * each.value) for each in results if (of := size(each)) is not None]
        return correlation([of for of, _ in pairs], [quality for _, quality in pairs])

    trained = all(each.step_flops is not None for each in results)  # the two are on different scales
    flops = with_size(lambda each: each.step_flops if trained else each.flops)
    return SizeCorrelation(steps, len(results), with_size(lambda each: each.parameters), flops)


def _of_both(here: Sequence[RungResult], there: Sequence[RungResult]) -> Correlation | None:
    first, second = ({each.number: each.value for each in some} for some in (here, there))
    both = sorted(first.keys() & second.keys())
    return correlation([first[number] for number in both], [second[number] for number in both])


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


def ranks(values: Sequence[float]) -> list[float]:
    """The rank of each value, from 1; equal values share the mean of their ranks."""
    order = sorted(range(len(values)), key=lambda i: values[i])
    found = [0.0] * len(values)
    start = 0
    while start < len(order):
        end = start
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
