"""How far the mean difference of two entrants may be from the truth, because of the seeds and of the documents.

The difference of seed s on document d is modelled as x[s, d] = mean + seed[s] + document[d] + both[s, d]. Its weighted
mean varies because other seeds, or other documents of the same kind, could have been drawn. S seeds, D documents, h the
share of a document in the weights, sum(h) = 1.

A plain bootstrap over three seeds is far too narrow: its variance is too small by (S - 1) / S, and there are ten
distinct resamples. So this is a hierarchical bootstrap with one parametric level: the documents are resampled, and the
seeds are drawn from a normal distribution with the estimated variance. That estimate is uncertain, so every draw is
divided by a random scale, as in Student's t. Without documents the result is Student's paired interval, exactly.
Davison and Hinkley 1997, "Bootstrap Methods and their Application", treat the bootstrap of several levels. That seeds
and data are both noise: Bouthillier et al. 2021, "Accounting for Variance in Machine Learning Benchmarks",
https://arxiv.org/abs/2103.03098.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, cast

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

RESAMPLES = 2_000
ATOMS = 50  # the resamples are sorted and averaged in groups: enough to keep their shape
NODES = 80  # of the integral over the random scale
SEED = 11  # of the bootstrap: the same runs give the same interval
MOST = 2_000_000  # entries of a matrix at once, which bounds the memory


@dataclass(frozen=True)
class Spread:
    """The variance of a mean difference, in two parts, and how well they are known.

    seeds: the part of the seeds, with seed x document. documents: the part that the documents cause alone. Each has its
    degrees of freedom. shape: bootstrap deviations of the mean over documents, with variance 1.
    """

    seeds: float
    seed_freedom: float
    documents: float
    document_freedom: float
    shape: Array

    @property
    def seed_share(self) -> float:
        """The share of the variance that the seeds cause, 0 to 1; NaN if nothing varies."""
        total = self.seeds + self.documents
        return self.seeds / total if total > 0 else math.nan

    def interval(self, confidence: float, chosen_from: int = 1) -> tuple[float, float]:
        """How much smaller (negative) and how much larger the true difference may be than the measured one.

        chosen_from: how many entrants the candidate was chosen from on validation data. It moves the upper end only.
        """
        level = (1 + confidence) / 2
        mirrored = replace(self, shape=-self.shape[::-1])
        return -mirrored._bound(level, 1), self._bound(level, chosen_from)

    @property
    def freedom(self) -> float:
        """Degrees of freedom of the sum of both parts.

        Satterthwaite's formula (growth = 2 * odds + odds**2, and share**2) does not hold with two or three seeds: if
        their spread is small by luck, it trusts the documents; if both parts are known badly, it is too careful. This
        one has its two limits, S - 1 if the seeds cause the variance and those of the documents if they do. In between
        it was chosen by simulation: whatever the share of the seeds, equal entrants are called "better" at nearly the
        nominal rate (`python -m benchmarks.verdict`).
        """
        if self.documents == 0:
            return self.seed_freedom
        share = self.documents / (self.seeds + self.documents)
        odds = self.documents / max(self.seeds, 1e-6 * self.documents)
        growth = min(self.seed_freedom / 2, 1.5) ** 4 * odds**3
        return 1 / (1 / (self.seed_freedom * (1 + growth)) + share**3 / self.document_freedom)

    def _bound(self, level: float, chosen_from: int) -> float:
        """How much larger than measured the true difference may be, with probability `level`.

        Test documents took no part in the choice of the candidate, but a run that was lucky on validation data may be
        lucky on test data too. The least favourable case is that both have the same luck. Then the seed part is that of
        the best of several treatments against one control with the same noise: Dunnett 1955, "A multiple comparison
        procedure for comparing several treatments with a control". The luck of a baseline that was the best of several
        is not credited: if one baseline is clearly the best, it had none.
        """
        from scipy.optimize import brentq

        total = math.sqrt(self.seeds + self.documents)
        if total == 0:
            return 0.0
        scales, chances = _scales(self.freedom)
        steps = self.shape * (math.sqrt(self.documents) / total)  # [A]
        width = max(math.sqrt(self.seeds) / total, 1e-6)
        below = _luck(chosen_from)

        def missing(q: float) -> float:
            return float(chances @ below((q * scales[:, None] - steps) / width).mean(1)) - level  # of [NODES, A]

        low, high = -1.0, 1.0
        while missing(high) < 0:
            high *= 2
        while missing(low) > 0:
            low *= 2
        return float(brentq(missing, low, high, xtol=1e-7)) * total


def spread(parts: Sequence[Array], weights: Array | None) -> Spread:
    """The spread of the sum of the weighted means of `parts`, each with its own seeds, all on the same documents.

    parts: differences, [S, D] each with S >= 2; without weights [S, 1]. weights: of the documents, [D]; None if the
    documents are not a sample, so that only the seeds vary.
    """
    share = np.ones(1) if weights is None else weights / weights.sum()  # [D]
    seeds, freedom = _of_seeds([part @ share for part in parts])
    if weights is None:
        return Spread(seeds, freedom, 0.0, math.inf, np.zeros(1))
    square = float(share @ share)
    factor = share**2 / np.maximum(1 - 2 * share + square, 1e-12)  # [D], unbiased if all documents vary alike
    means = sum(part.mean(0) for part in parts)  # [D]
    alone = float(factor @ (means - means @ share) ** 2)
    # Both parts contain seed x document. It stays with the seeds, so it is taken out of the documents.
    documents = max(alone - sum(_of_both(part, share, factor) for part in parts), 0.0)
    return Spread(seeds, freedom, documents, _freedom(share, square, factor), _resampled(means, share))


def _of_seeds(means: Sequence[Array]) -> tuple[float, float]:
    """The variance of a sum of means over seeds, and its degrees of freedom (Welch's). means: [S] each."""
    variances = [float(each.var(ddof=1)) / len(each) for each in means]
    total = sum(variances)
    if total == 0:
        return 0.0, float(sum(len(each) - 1 for each in means))
    return total, total**2 / sum(v**2 / (len(each) - 1) for v, each in zip(variances, means, strict=True))


def _of_both(part: Array, share: Array, factor: Array) -> float:
    """The variance of the weighted mean that seed x document causes. part: [S, D]."""
    rest = part - part.mean(0)  # [S, D]
    rest = rest - (rest @ share)[:, None]
    count = len(part)
    return float((rest**2 @ factor).sum()) / (count * (count - 1))


def _freedom(share: Array, square: float, factor: Array) -> float:
    """Degrees of freedom of the variance over documents (Satterthwaite), few if a few documents hold most weight.

    The estimate is the form y' A y with A = (I - 1 h')' diag(factor) (I - 1 h'), so it has tr(A)^2 / tr(A A).
    """
    zero, one, two = (float((factor * share**power).sum()) for power in (0, 1, 2))
    apart = zero**2 * square**2 + 2 * zero * two - 4 * square * zero * one + 2 * one**2
    own = float((factor**2 * (1 + 2 * (square - 2 * share))).sum())
    return max(square**2 / (apart + own), 1.0)


def _resampled(means: Array, share: Array) -> Array:
    """Deviations of the ratio estimator over resampled documents, sorted, mean 0 and variance 1, [ATOMS]."""
    counts = _counts(len(share))  # [RESAMPLES, D]
    columns = np.stack([means * share, share], axis=1)  # [D, 2]
    rows = max(1, MOST // len(share))
    sums = np.concatenate([counts[row : row + rows] @ columns for row in range(0, RESAMPLES, rows)])  # [RESAMPLES, 2]
    atoms = np.sort(sums[:, 0] / sums[:, 1]).reshape(ATOMS, -1).mean(1)
    atoms = atoms - atoms.mean()
    return cast("Array", atoms / (atoms.std() or 1.0))


@lru_cache(maxsize=2)
def _counts(documents: int) -> NDArray[np.uint8]:
    """How many times each document is drawn in each resample, [RESAMPLES, D]; the same in every process."""
    random = np.random.default_rng(SEED)
    drawn = (random.integers(0, documents, documents) for _ in range(RESAMPLES))
    return np.stack([np.bincount(each, minlength=documents) for each in drawn]).astype(np.uint8)


def _scales(freedom: float) -> tuple[Array, Array]:
    """Values of sqrt(chi^2 / freedom) and their probabilities, [NODES] each, for the integral in Student's t."""
    from scipy.special import gammaincinv, gammaln

    half = min(freedom, 1e6) / 2
    ends = np.log(gammaincinv(half, [1e-12, 1 - 1e-12]) / half)
    logs = np.linspace(ends[0], ends[1], NODES)
    density = np.exp(half * (logs + math.log(half) - np.exp(logs)) - gammaln(half))
    return np.exp(logs / 2), density / density.sum()


@lru_cache(maxsize=8)
def _luck(count: int) -> Callable[[Array], Array]:
    """The distribution function of (b + max(c_1 .. c_count)) / sqrt(2), all normal: a control, the best of `count`."""
    from scipy.special import ndtr

    if count == 1:
        return cast("Callable[[Array], Array]", ndtr)
    normal = np.linspace(-8, 8, 321)
    chances = np.exp(-(normal**2) / 2)
    points = np.linspace(-9, 9, 3601)
    below = ndtr(math.sqrt(2) * points[:, None] - normal) ** count @ (chances / chances.sum())
    return lambda q: np.interp(q, points, below)
