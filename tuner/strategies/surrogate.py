"""The default: a Gaussian process learns from every measurement and proposes the most promising configuration.

Jones, Schonlau & Welch 1998, "Efficient Global Optimization", https://doi.org/10.1023/A:1008306431147. The first few
configurations lie far apart; after them the one with the greatest expected improvement is proposed. The model predicts
half the rank of a time plus half its logarithm: ranks separate fast configurations that very slow ones would compress.
A configuration that is likely to fail is less promising (`tuner.strategies._feasibility`). `tuner.strategies._warm`
adds measurements of other devices.

On most devices sizes that are powers of two tend to be faster. So the first configurations have few other sizes, and
the model sees how many there are: what one size shows holds for all. Where that is wrong it hides configurations, so
from some point on half of the proposals are made without it.

Where the fastest configurations have no fast neighbours, the model ends near another one. So in a long search every
third proposal, while nothing better is found, is the one with the best optimistic prediction (Srinivas et al. 2010,
"Gaussian Process Optimization in the Bandit Setting", https://arxiv.org/abs/0912.3995), which looks farther away.
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
    from tuner.strategies._feasibility import Feasibility
    from tuner.strategies._gaussian_process import GaussianProcess

TRIED = 200  # random configurations; at the start the one farthest from all known ones is proposed
CANDIDATES = 20_000  # if the space is larger, this many are drawn at random at each fit
EVEN = 2.0  # at the start a distance counts less by up to exp(-EVEN), if no size is a power of two
WITHOUT = 50  # results from which on half of the proposals ignore which sizes are powers of two
LONG = 100  # results from which on a search can be stuck ...
STUCK = 20  # ... if none of as many results was better than those before
TURN = 3  # while it is stuck, every third proposal is optimistic:
OPTIMISM = 2.5  # deviations below the mean
MANY = 0.2  # share of failed configurations that calls for full caution, and for no preference of powers of two


@dataclass(frozen=True)
class Settings:
    """initial: configurations that lie far apart, before the model is used. early: the same number if any of them
    failed. valid: of them must run, unless three times `initial` were tried. refit: the model's lengths are fitted
    again when the number of results has grown by this factor. length: of a feature before any measurement. ranks: their
    share in the predicted value. caution: the power of the chance to run by which an expected improvement is
    multiplied."""

    initial: int = 10
    early: int = 6
    valid: int = 3
    refit: float = 1.35
    length: float = 1.0
    ranks: float = 0.5
    caution: float = 4.0


@strategy("surrogate")
class Surrogate(Strategy):
    settings: ClassVar[Settings] = Settings()

    def __init__(
        self, space: TuningSpace, seed: int = 0, first: tuple[int, ...] = (), hints: Hints | None = None
    ) -> None:
        super().__init__(space, seed, first, hints)
        self.model = import_module("tuner.strategies._gaussian_process").GaussianProcess
        self.feasibility = import_module("tuner.strategies._feasibility").Feasibility
        self.process: GaussianProcess | None = None
        self.feasible: Feasibility | None = None
        self.features = np.column_stack([space.features, space.uneven]) if space.uneven.any() else space.features
        self.without: Surrogate | None = None
        self.seed = seed
        self.candidates = np.arange(len(space))
        self.refit_at = 0

    def propose(self) -> int:
        if self._is_beginning():
            return self._apart()
        if self._is_doubted():
            return self._without().propose()
        values = modelled(np.array(list(self._valid().values())), self.settings.ranks)
        if self.process is None or len(self.results) >= self.refit_at or not self._covered():
            self._renew().fit(self._rows(), values, self.rng)
        assert self.process is not None
        mean, deviation = self.process.predict(self._rows(), values)
        if self._looks_farther():
            return self._promising(np.exp(OPTIMISM * deviation - mean))
        return self._promising(expected_improvement(mean, deviation, float(values.min())))

    def _looks_farther(self) -> bool:
        """Whether nothing better was found for a while, and it is the turn of an optimistic proposal."""
        times = list(self._valid().values())
        is_stuck = len(times) >= LONG and len(times) - times.index(min(times)) > STUCK
        return is_stuck and len(self.results) % TURN == 0

    def upcoming(self, asked: int) -> list[int]:
        """The configurations that lie far apart, which depend on no time."""
        results, state = self.results, self.rng.bit_generator.state
        self.results, found = {**results, asked: 1.0, **dict.fromkeys(self.first, 1.0)}, list(self.first)
        try:
            while self._is_beginning() and len(self.results) < len(self.space):
                found.append(self._apart())
                self.results[found[-1]] = 1.0
        finally:
            self.results, self.rng.bit_generator.state = results, state
        return found

    def _is_doubted(self) -> bool:
        """Whether this proposal ignores which sizes are powers of two: each if many configurations fail, as that
        depends on products of sizes; none in a large space, as each model draws candidates of its own."""
        if self.features is self.space.features or len(self.candidates) < len(self.space):
            return False
        is_late = len(self.results) >= WITHOUT and len(self.results) // 2 % 2 == 1
        return is_late or bool(self._failed().mean() > MANY)

    def _without(self) -> Surrogate:
        """The same strategy, whose model does not see which sizes are powers of two."""
        if self.without is None:
            self.without = type(self)(self.space, self.seed)
            self.without.features = self.space.features
            self.without.results = self.results  # the same, not a copy
        return self.without

    def _is_beginning(self) -> bool:
        known, valid, wanted = len(self.results), len(self._valid()), self.settings
        initial = wanted.initial if known == valid else wanted.early
        return not valid or known < initial or (valid < wanted.valid and known < 3 * wanted.initial)

    def _valid(self) -> dict[int, float]:
        """Milliseconds of the configurations that ran, in the order of reports."""
        return {number: value for number, value in self.results.items() if value is not None}

    def _caution(self) -> float:
        """The power of a chance: from 1, if few failed, to that of the settings."""
        failed = 1 - len(self._valid()) / len(self.results)
        return 1 + (self.settings.caution - 1) * min(1.0, failed / MANY)

    def _likely_to_run(self) -> np.ndarray | float:
        """What promises are multiplied by, for each candidate; 1 if none or all of the known ones failed."""
        failed = self._failed()
        if failed.all() or not failed.any():
            return 1.0
        assert self.process is not None
        if self.feasible is None or self.feasible.process.features is not self.process.features:
            self.feasible = self.feasibility(self.process.features)
        return self.feasible.chances(self._places(list(self.results)), failed) ** self._caution()

    def _failed(self) -> np.ndarray:
        """Which of the known configurations failed; [n]."""
        return np.array([value is None for value in self.results.values()])

    def _promising(self, promise: np.ndarray) -> int:
        """The most promising unknown configuration; promise: of each candidate."""
        promise = promise * self._likely_to_run()
        promise[self._places(list(self.results))] = -1
        return int(self.candidates[int(np.argmax(promise))])

    def _renew(self) -> GaussianProcess:
        """A process over new candidates, with the lengths of the previous one."""
        self.refit_at = int(np.ceil(len(self.results) * self.settings.refit))
        if len(self.space) > CANDIDATES:
            self.candidates = self._drawn()
        old, self.process = self.process, self.model(self.features[self.candidates], self.settings.length)
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
        """The places among the candidates of the configurations that ran, in the order of reports."""
        return self._places(list(self._valid()))

    def _places(self, numbers: list[int]) -> list[int]:
        if len(self.candidates) == len(self.space):
            return numbers
        return np.searchsorted(self.candidates, numbers).tolist()

    def _apart(self) -> int:
        """Among some random configurations, the one that is farthest from all known ones, likely to run, and even."""
        unknown = self.unknown()
        tried = self.rng.choice(unknown, min(TRIED, len(unknown)), replace=False)
        even = np.exp(-EVEN * self.space.uneven[tried])
        if not self.results:
            return int(tried[int(np.argmax(even))])
        known = self.space.features[list(self.results)]
        apart = ((self.space.features[tried][:, None] - known[None]) ** 2).sum(2).min(1)
        failed = self._failed()
        if failed.any() and not failed.all():
            rows = np.concatenate([np.array(list(self.results)), tried])
            chances = self.feasibility(self.space.features[rows]).chances(list(range(len(failed))), failed)
            apart = np.sqrt(apart) * chances[len(failed) :]
        return int(tried[int(np.argmax(apart * even))])


def modelled(times: np.ndarray, ranks: float) -> np.ndarray:
    """The values to model: normal scores of ranks and logarithms of times, mixed and standardised; [n] -> [n]."""
    from scipy.special import ndtri

    by_rank = standard(ndtri(ranked(times) / (len(times) + 1)))
    return standard(ranks * by_rank + (1 - ranks) * standard(np.log(times)))


def ranked(values: np.ndarray) -> np.ndarray:
    """values: [n] -> [n], their ranks from 1 on; equal values share the mean of their ranks.

    `scipy.stats.rankdata` gives the same, but importing it takes longer than a short tuning run.
    """
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[places]


def standard(values: np.ndarray) -> np.ndarray:
    return (values - values.mean()) / (values.std() + 1e-9)


def expected_improvement(mean: np.ndarray, deviation: np.ndarray, best: float) -> np.ndarray:
    """The mean of max(best - value, 0) for normally distributed values."""
    from scipy.special import ndtr

    ahead = (best - mean) / deviation
    density = np.exp(-0.5 * ahead**2) / np.sqrt(2 * np.pi)
    return deviation * (ahead * ndtr(ahead) + density)
