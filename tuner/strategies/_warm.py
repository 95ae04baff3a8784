"""Warm start: the default strategy if other devices have measured the space.

The logarithm of a time is modelled as a weighted sum of the logarithms on the other devices plus a residual. The
weights have a normal prior around the likeness of the devices, the residual is a Gaussian process over the
configurations, and both are learned together, as in Rasmussen & Williams 2006, section 2.7. So misleading hints lose
their weight, and the residual is still explored. From some point on every other proposal is made without hints, because
they could hide a configuration that is best only here; earlier if the measurements do not rank as the hints say. Those
that look farther away ignore the hints too. Half of the logarithm is replaced by ranks, as in
`tuner.strategies.surrogate`. D devices, n measurements, N candidates.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri

from tuner.space import TuningSpace
from tuner.strategies.contract import Hints
from tuner.strategies.surrogate import Surrogate, expected_improvement, ranked, standard

DOUBT = 0.25  # standard deviation of a weight before any measurement; the weights add up to one
RESIDUAL = 0.5  # standard deviation of the residual before any measurement, relative to that of the hints ...
RESIDUAL_WEIGHT = 4.0  # ... and how many measurements that prior is worth
LENGTH = 1.35  # of a feature in the residual
FIT_FROM = 8  # measurements before lengths are fitted
ALONE = 24  # measurements from which on every other proposal ignores the hints, ...
MISLED = 8  # ... or this many, if they do not rank as on the other devices
ROUNDS = 4  # of finding the weights and the variance in alternation


class Warm(Surrogate):
    def __init__(
        self, space: TuningSpace, seed: int = 0, first: tuple[int, ...] = (), hints: Hints | None = None
    ) -> None:
        super().__init__(space, seed, first, hints)
        assert hints is not None
        self.features = space.features  # the hints say which sizes are fast
        self.alone = Surrogate(space, seed)
        self.alone.results = self.results  # the same, not a copy
        self.basis = np.vstack([np.ones(len(space)), hints.times])  # [1 + D, N]
        self.expected = np.append(0.0, hints.weights)
        self.certainty = np.diag(np.append(1e-6, np.full(len(hints.weights), DOUBT**-2)))
        self.residual = max(RESIDUAL * float((hints.weights @ hints.times).std()), 1e-3)

    def propose(self) -> int:
        if not self._valid():
            return self._expected()
        if self._is_alone() or self._looks_farther():
            return self.alone.propose()
        values = self._values()
        if self.process is None or not self._covered():
            self._start()
        elif len(self.results) >= max(self.refit_at, FIT_FROM):
            self._fit(values)
        return self._promising(expected_improvement(*self._predict(values), float(values.min())))

    def _is_alone(self) -> bool:
        """Whether this proposal ignores the hints."""
        return len(self.results) % 2 == 1 and (len(self.results) >= ALONE or self._is_misled())

    def _is_misled(self) -> bool:
        """Whether the measured configurations do not rank as on the other devices."""
        valid = self._valid()
        if len(valid) < MISLED:
            return False
        hinted = ranked((self.expected @ self.basis)[list(valid)])
        measured = ranked(np.array(list(valid.values())))
        return bool((standard(hinted) @ standard(measured)) <= 0)

    def upcoming(self, asked: int) -> list[int]:
        return list(self.first)

    def _expected(self) -> int:
        """The fastest unknown configuration on the other devices."""
        times = self.expected @ self.basis
        times[list(self.results)] = np.inf
        return int(np.argmin(times))

    def _values(self) -> np.ndarray:
        """Half logarithm, half rank in the unit of logarithms; [n], from zero."""
        logarithms = np.log(list(self._valid().values()))
        ranks = ndtri(ranked(logarithms) / (len(logarithms) + 1))
        mixed = (logarithms - logarithms.mean() + logarithms.std() * standard(ranks)) / 2
        return mixed - mixed.min()

    def _start(self) -> None:
        old, self.process = self.process, None
        process = self._renew()
        process.length = LENGTH
        process.lengths = np.full_like(process.lengths, LENGTH) if old is None else old.lengths
        process.forget()

    def _fit(self, values: np.ndarray) -> None:
        """Fit the lengths to the residual."""
        weights, _, _ = self._weights(values)
        left = values - weights @ self.basis[:, list(self._valid())]
        self._start()
        assert self.process is not None
        self.process.fit(self._rows(), standard(left), self.rng)

    def _weights(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        """Mean of the weights [1 + D], the inverse of their covariance relative to the variance, and the variance."""
        assert self.process is not None
        self.process.see(self._rows())
        basis, whitened = self.process.whiten(self.basis[:, list(self._valid())].T), self.process.whiten(values)
        variance = self.residual**2
        for _ in range(ROUNDS):
            precision = basis.T @ basis + variance * self.certainty
            weights = np.linalg.solve(precision, basis.T @ whitened + variance * self.certainty @ self.expected)
            left = whitened - basis @ weights
            variance = (RESIDUAL_WEIGHT * self.residual**2 + left @ left) / (RESIDUAL_WEIGHT + len(values))
        return weights, precision, float(variance)

    def _predict(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of every candidate, [N] each."""
        weights, precision, variance = self._weights(values)
        assert self.process is not None
        whitened = self.process.whiten(np.column_stack([values, self.basis[:, list(self._valid())].T]))
        seen = self.process.spread(whitened)  # [2 + D, N]
        unseen = self.basis[:, self.candidates] - seen[1:]  # the part of the basis that the process does not explain
        mean = seen[0] + weights @ unseen
        doubt = np.einsum("ij,ij->j", unseen, np.linalg.solve(precision, unseen))
        return mean, np.sqrt(variance * (self.process.left() + doubt))
