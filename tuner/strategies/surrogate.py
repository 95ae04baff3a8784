"""The default: a Gaussian process learns from every measurement and proposes the most promising configuration.

Jones, Schonlau & Welch 1998, "Efficient Global Optimization", https://doi.org/10.1023/A:1008306431147. The first few
configurations lie far apart; after them the one with the greatest expected improvement is proposed. The model predicts
half the rank of a time plus half its logarithm: ranks separate fast configurations that very slow ones would compress.
A failed configuration counts as the slowest. `tuner.strategies._warm` adds measurements of other devices.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from tuner.space import TuningSpace
from tuner.strategies.contract import Hints, Strategy
from tuner.strategies.registry import strategy

if TYPE_CHECKING:
    from tuner.strategies._gaussian_process import GaussianProcess

TRIED = 200  # random configurations; at the start the one farthest from all known ones is proposed
CANDIDATES = 20_000  # if the space is larger, this many are drawn at random at each fit


@dataclass(frozen=True)
class Settings:
    """initial: configurations that lie far apart, before the model is used. refit: the model's lengths are fitted again
    when the number of results has grown by this factor. length: of a feature before any measurement. ranks: their
    share in the predicted value."""

    initial: int = 10
    refit: float = 1.35
    length: float = 1.0
    ranks: float = 0.5


@strategy("surrogate")
class Surrogate(Strategy):
    settings: ClassVar[Settings] = Settings()

    def __init__(
        self, space: TuningSpace, seed: int = 0, first: tuple[int, ...] = (), hints: Hints | None = None
    ) -> None:
        super().__init__(space, seed, first, hints)
        self.model = import_module("tuner.strategies._gaussian_process").GaussianProcess
        self.process: GaussianProcess | None = None
        self.candidates = np.arange(len(space))
        self.refit_at = 0

    def propose(self) -> int:
        if len(self.results) < self.settings.initial:
            return self._apart()
        values = modelled(list(self.results.values()), self.settings.ranks)
        if self.process is None or len(self.results) >= self.refit_at or not self._covered():
            self._renew().fit(self._rows(), values, self.rng)
        assert self.process is not None
        return self._promising(*self.process.predict(self._rows(), values), float(values.min()))

    def _promising(self, mean: np.ndarray, deviation: np.ndarray, best: float) -> int:
        promise = expected_improvement(mean, deviation, best)
        promise[self._rows()] = -1
        return int(self.candidates[int(np.argmax(promise))])

    def _renew(self) -> GaussianProcess:
        """A process over new candidates, with the lengths of the previous one."""
        self.refit_at = int(np.ceil(len(self.results) * self.settings.refit))
        if len(self.space) > CANDIDATES:
            self.candidates = self._drawn()
        old, self.process = self.process, self.model(self.space.features[self.candidates], self.settings.length)
        if old is not None:
            self.process.lengths, self.process.noise = old.lengths, old.noise
        return self.process

    def _drawn(self) -> np.ndarray:
        """The known configurations, the neighbours of the best, and random ones, in order."""
        near = self.space.neighbours(self.best) if self.best is not None else []
        unknown = self.unknown()
        others = self.rng.choice(unknown, min(CANDIDATES, len(unknown)), replace=False)
        return np.unique(np.concatenate([others, np.array([*self.results, *near], dtype=np.int64)]))

    def _covered(self) -> bool:
        """Whether the candidates hold all known configurations and at least one more; others may have reported some."""
        if len(self.candidates) == len(self.space):
            return True
        return len(self.candidates) > len(self.results) and bool(np.isin(list(self.results), self.candidates).all())

    def _rows(self) -> list[int]:
        """The places of the known configurations among the candidates, in the order they were reported."""
        known = list(self.results)
        if len(self.candidates) == len(self.space):
            return known
        return np.searchsorted(self.candidates, known).tolist()

    def _apart(self) -> int:
        """Among some random configurations, the one that is farthest from all known ones."""
        unknown = self.unknown()
        tried = self.rng.choice(unknown, min(TRIED, len(unknown)), replace=False)
        if not self.results:
            return int(tried[0])
        known = self.space.features[list(self.results)]
        apart = ((self.space.features[tried][:, None] - known[None]) ** 2).sum(2).min(1)
        return int(tried[int(np.argmax(apart))])


def modelled(results: list[float | None], ranks: float) -> np.ndarray:
    """The values to model: normal scores of ranks and logarithms of times, mixed and standardised; [n]."""
    from scipy.special import ndtri

    times = slowest_for_failed(results)
    by_rank = standard(ndtri(ranked(times) / (len(times) + 1)))
    return standard(ranks * by_rank + (1 - ranks) * standard(np.log(times)))


def ranked(values: np.ndarray) -> np.ndarray:
    """values: [n] -> [n], their ranks from 1 on; equal values share the mean of their ranks.

    `scipy.stats.rankdata` gives the same, but importing it takes longer than a short tuning run.
    """
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[places]


def slowest_for_failed(results: list[float | None]) -> np.ndarray:
    slowest = max((value for value in results if value is not None), default=1.0)
    return np.array([slowest if value is None else value for value in results])


def standard(values: np.ndarray) -> np.ndarray:
    return (values - values.mean()) / (values.std() + 1e-9)


def expected_improvement(mean: np.ndarray, deviation: np.ndarray, best: float) -> np.ndarray:
    """The mean of max(best - value, 0) for normally distributed values."""
    from scipy.special import ndtr

    ahead = (best - mean) / deviation
    density = np.exp(-0.5 * ahead**2) / np.sqrt(2 * np.pi)
    return deviation * (ahead * ndtr(ahead) + density)
