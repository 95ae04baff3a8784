"""The default: a Gaussian process learns from every measurement which configuration promises most.

Jones, Schonlau & Welch 1998, "Efficient Global Optimization", https://doi.org/10.1023/A:1008306431147: after a few
configurations that lie far apart, always the one with the greatest expected improvement. What is modelled is half the
rank of a time and half its logarithm: ranks tell good ones apart that slow ones would crowd together. One that failed
counts as slow as the slowest.

With `hints` from other devices (see `tuner.transfer`) the search starts among the best of them, and the process models
what a straight line through the hints leaves over. The line's slope is fitted, with `SLOPE` as the prior, so that hints
which mislead are soon ignored.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr, ndtri
from scipy.stats import rankdata

from tuner.space import TuningSpace
from tuner.strategies.contract import Hints, Strategy
from tuner.strategies.gaussian_process import GaussianProcess

INITIAL = 10  # configurations far apart, before the model is asked
TRIED = 200  # random ones that each of them is the farthest of
REFIT = 1.35  # lengths are fitted anew each time so many times more is known
CANDIDATES = 20_000  # of a larger space so many, drawn at random at each fit
HINTED = 3  # configurations that hints alone choose, apart from one another among the best `TOP` of them
TOP = 20
SLOPE, SLOPE_WEIGHT = 0.7, 2.0  # of the line before anything was measured, and how many measurements that is worth


class Surrogate(Strategy):
    def __init__(
        self, space: TuningSpace, seed: int = 0, first: tuple[int, ...] = (), hints: Hints | None = None
    ) -> None:
        super().__init__(space, seed, first, hints)
        self.process: GaussianProcess | None = None
        self.candidates = np.arange(len(space))
        self.initial = INITIAL if hints is None else HINTED
        self.refit_at = self.initial
        self.features = space.features
        self.line = np.zeros(len(space))  # what the hints expect, in the unit of `_modelled`; fitted before each use
        if hints is not None:
            self.features = np.column_stack([space.features, (hints - hints.min()) / max(np.ptp(hints), 1e-9)])

    def propose(self) -> int:
        if len(self.results) < self.initial:
            return self._apart()
        modelled = _modelled(list(self.results.values()))
        values, best = self._beside_the_line(modelled), float(modelled.min())
        if len(self.results) >= self.refit_at or self.process is None or not self._covered():
            self._fit(values)
        assert self.process is not None
        mean, deviation = self.process.predict(self._rows(), values)
        promise = _expected_improvement(mean + self.line[self.candidates], deviation, best)
        promise[self._rows()] = -1
        return int(self.candidates[int(np.argmax(promise))])

    def _fit(self, values: np.ndarray) -> None:
        self.refit_at = int(np.ceil(len(self.results) * REFIT))
        if len(self.space) > CANDIDATES:
            self.candidates = self._drawn()
        lengths = None if self.process is None else (self.process.lengths, self.process.noise)
        self.process = GaussianProcess(self.features[self.candidates])
        if lengths is not None:
            self.process.lengths, self.process.noise = lengths
        if len(values) > HINTED:
            self.process.fit(self._rows(), _standard(values), self.rng)

    def _beside_the_line(self, modelled: np.ndarray) -> np.ndarray:
        """What the line through the hints leaves of `modelled`, its mean moved into the line."""
        if self.hints is None:
            return modelled
        hinted = self.hints[list(self.results)]
        apart = hinted - hinted.mean()
        slope = max(0.0, (SLOPE_WEIGHT * SLOPE + apart @ modelled) / (SLOPE_WEIGHT + apart @ apart))
        left = modelled - slope * hinted
        self.line = slope * self.hints + left.mean()
        return left - left.mean()

    def _drawn(self) -> np.ndarray:
        """The known, the neighbours of the best, and random ones, in order."""
        near = self.space.neighbours(self.best) if self.best is not None else []
        others = self.rng.choice(len(self.space), CANDIDATES, replace=False)
        return np.unique(np.concatenate([others, np.array([*self.results, *near], dtype=np.int64)]))

    def _covered(self) -> bool:
        """Whether all that is known is among the candidates: somebody else may have told it."""
        return len(self.candidates) == len(self.space) or bool(np.isin(list(self.results), self.candidates).all())

    def _rows(self) -> list[int]:
        """The places of the known configurations among the candidates, in the order they were told."""
        known = list(self.results)
        if len(self.candidates) == len(self.space):
            return known
        return np.searchsorted(self.candidates, known).tolist()

    def _apart(self) -> int:
        """Of some random configurations, or of the best by the hints, the one that is farthest from all known."""
        unknown = self.unknown()
        if self.hints is None:
            tried = self.rng.choice(unknown, min(TRIED, len(unknown)), replace=False)
        else:
            tried = unknown[np.argsort(self.hints[unknown], kind="stable")[:TOP]]
        if not self.results:
            return int(tried[0])
        known = self.features[list(self.results)]
        apart = ((self.features[tried][:, None] - known[None]) ** 2).sum(2).min(1)
        return int(tried[int(np.argmax(apart))])


def _modelled(results: list[float | None]) -> np.ndarray:
    """Half rank, half logarithm, each standardised; [n]."""
    valid = [value for value in results if value is not None]
    slowest = max(valid, default=1.0)
    times = np.array([slowest if value is None else value for value in results])
    return _standard((_standard(ndtri(rankdata(times) / (len(times) + 1))) + _standard(np.log(times))) / 2)


def _standard(values: np.ndarray) -> np.ndarray:
    return (values - values.mean()) / (values.std() + 1e-9)


def _expected_improvement(mean: np.ndarray, deviation: np.ndarray, best: float) -> np.ndarray:
    ahead = (best - mean) / deviation
    density = np.exp(-0.5 * ahead**2) / np.sqrt(2 * np.pi)
    return deviation * (ahead * ndtr(ahead) + density)
