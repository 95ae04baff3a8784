"""A Gaussian process over the configurations of a space: the mean and deviation of each that was not measured.

Rasmussen & Williams 2006, "Gaussian Processes for Machine Learning", ch. 2, 4 and 5: a Matern-5/2 kernel with a length
for every feature, lengths and noise by the marginal likelihood under weak priors, the signal's variance in closed form.
All N candidates are predicted at once. Measurements add rows to the factor and to the solutions, so that the n-th costs
O(n N); only new lengths, which are fitted less and less often, cost O(n^2 N).
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.optimize import minimize

NOISE = -5.0  # log of the variance of the noise relative to the signal's, before any measurement
NOISE_SPREAD = 2.0  # standard deviation of its normal prior
JITTER = 1e-6
MOST_FITTED = 160  # measurements that the lengths are fitted to; half of them are the fastest
ITERATIONS = 30
FIRST_CAPACITY = 64


class GaussianProcess:
    """features: [N, F] of all candidates, from 0 to 1. length: of every feature before any measurement; the prior of a
    length's logarithm is normal around it, with variance one."""

    def __init__(self, features: np.ndarray, length: float = 1.0) -> None:
        self.features = features
        self.length = length
        self.lengths = np.full(features.shape[1], length)
        self.noise = np.exp(NOISE)
        self.forget()

    def forget(self) -> None:
        """Forget all measurements. Call it after changing the lengths."""
        self.scaled = self.features / self.lengths
        self.norms = np.einsum("ij,ij->i", self.scaled, self.scaled)
        self.rows: list[int] = []  # the candidates that were measured
        self.factor = np.zeros((0, 0))  # Cholesky, lower, [capacity, capacity]
        self.solved = np.zeros(
            (0, len(self.features)), dtype=np.float32
        )  # the factor's inverse times the kernel, [capacity, N]
        self.explained = np.zeros(len(self.features))  # part of the prior's variance of each candidate

    def fit(self, rows: list[int], values: np.ndarray, rng: np.random.Generator) -> None:
        """Choose lengths and noise for the `values` [n], standardised, of the candidates `rows`."""
        chosen = np.arange(len(rows))
        if len(rows) > MOST_FITTED:
            order, half = np.argsort(values), MOST_FITTED // 2
            chosen = np.concatenate([order[:half], rng.choice(order[half:], half, replace=False)])
        count = self.features.shape[1]
        start = np.append(np.log(self.lengths), np.log(self.noise))
        bounds = [(-3.0, 3.0)] * count + [(-12.0, 0.0)]
        seen = self.features[np.array(rows)[chosen]]
        found = minimize(
            _loss,
            start,
            (seen, values[chosen], np.log(self.length)),
            "L-BFGS-B",
            True,
            bounds=bounds,
            options={"maxiter": ITERATIONS},
        )
        self.lengths, self.noise = np.exp(found.x[:count]), float(np.exp(found.x[count]))
        self.forget()

    def predict(self, rows: list[int], values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and deviation of every candidate, [N] each, for `values` around zero of the candidates `rows`."""
        self.see(rows)
        whitened = self.whiten(values)
        signal = max(float(whitened @ whitened) / len(rows), 1e-12)
        return self.spread(whitened), np.sqrt(signal * self.left())

    def see(self, rows: list[int]) -> None:
        """Add the measured candidates. `rows` lists all of them, those of the last call first."""
        n, new = len(rows), rows[len(self.rows) :]
        if new:
            self._grow(n)
            self._add(new)

    def whiten(self, values: np.ndarray) -> np.ndarray:
        """[n, ...] -> [n, ...]: values that are independent, with the signal's variance, if the model is right."""
        n = len(self.rows)
        return solve_triangular(self.factor[:n, :n], values, lower=True)

    def spread(self, whitened: np.ndarray) -> np.ndarray:
        """[n, ...] -> [..., N]: the prediction from whitened values for every candidate."""
        return whitened.T.astype(np.float32) @ self.solved[: len(self.rows)]

    def left(self) -> np.ndarray:
        """[N], from 0 to 1: the unexplained part of the signal's variance of each candidate."""
        return np.maximum(1 - self.explained, 1e-9)

    def _grow(self, n: int) -> None:
        have = len(self.factor)
        if n > have:
            capacity = max(n, 2 * have, FIRST_CAPACITY)
            factor, solved = np.zeros((capacity, capacity)), np.empty((capacity, len(self.features)), dtype=np.float32)
            factor[:have, :have], solved[:have] = self.factor, self.solved
            self.factor, self.solved = factor, solved

    def _add(self, new: list[int]) -> None:
        """Extend the factor and the solutions by a block of rows."""
        k, n = len(self.rows), len(self.rows) + len(new)
        squared = self.norms[new, None] + self.norms[None] - 2 * self.scaled[new] @ self.scaled.T
        kernel = _matern(np.maximum(squared, 0).astype(np.float32))  # [n - k, N]
        column = np.zeros((n - k, 0))
        if k:
            column = solve_triangular(self.factor[:k, :k], kernel[:, self.rows].T.astype(np.float64), lower=True).T
        own = kernel[:, new].astype(np.float64) + (self.noise + JITTER) * np.eye(n - k) - column @ column.T
        corner = _cholesky(own)
        self.factor[k:n, :k], self.factor[k:n, k:n] = column, corner
        kernel -= column.astype(np.float32) @ self.solved[:k]
        self.solved[k:n] = solve_triangular(corner.astype(np.float32), kernel, lower=True)
        self.explained += np.einsum("ij,ij->j", self.solved[k:n], self.solved[k:n])
        self.rows += new


def _cholesky(matrix: np.ndarray) -> np.ndarray:
    """The lower Cholesky factor; adds to the diagonal as much as it needs."""
    for extra in (0.0, 1e-5, 1e-3, 1e-1):
        try:
            return cholesky(matrix + extra * np.eye(len(matrix)), lower=True)
        except np.linalg.LinAlgError:
            continue
    return np.diag(np.sqrt(np.maximum(np.diag(matrix), JITTER)))


def _matern(squared: np.ndarray) -> np.ndarray:
    root = np.sqrt(5 * squared + 1e-12)
    return (1 + root + root**2 / 3) * np.exp(-root)


def _loss(point: np.ndarray, features: np.ndarray, values: np.ndarray, length: float) -> tuple[float, np.ndarray]:
    """Minus the log of the posterior of the log lengths and log noise, up to a constant, and its gradient.

    length: the logarithm that the lengths' prior is centred on.
    """
    n, count = features.shape
    lengths, noise = np.exp(point[:count]), np.exp(point[count])
    apart = ((features[:, None, :] - features[None, :, :]) / lengths) ** 2  # [n, n, F]
    squared = apart.sum(2)
    root = np.sqrt(5 * squared + 1e-12)
    slope = -(5 / 6) * (1 + root) * np.exp(-root)  # of the kernel by the squared distance
    try:
        factor = cholesky(_matern(squared) + (noise + JITTER) * np.eye(n), lower=True)
    except np.linalg.LinAlgError:
        return 1e9, np.zeros_like(point)
    inverse_factor = solve_triangular(factor, np.eye(n), lower=True)
    inverse = inverse_factor.T @ inverse_factor
    weights = inverse @ values
    signal = max(float(values @ weights) / n, 1e-12)
    outer = inverse - np.outer(weights, weights) / signal
    loss = 0.5 * n * np.log(signal) + np.log(np.diag(factor)).sum()
    gradient = np.append(-np.einsum("ij,ij,ijk->k", outer, slope, apart), 0.5 * np.trace(outer) * noise)
    prior = np.append(point[:count] - length, (point[count] - NOISE) / NOISE_SPREAD)
    scale = np.append(np.ones(count), NOISE_SPREAD)
    return loss + 0.5 * float(prior @ prior), gradient + prior / scale
