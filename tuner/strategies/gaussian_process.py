"""A Gaussian process over the configurations of a space: what it expects of each that was not measured, and how surely.

Rasmussen & Williams 2006, "Gaussian Processes for Machine Learning", ch. 2, 4 and 5: a Matern-5/2 kernel with a length
for every feature, lengths and noise by the marginal likelihood under weak priors, the signal's variance in closed form.
All N candidates are predicted at once. A measurement adds a row to the factor and to what was solved with it, so that
the n-th costs O(n N); only new lengths, which are asked for less and less often, cost O(n^2 N).
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.optimize import minimize

NOISE = -5.0  # log of the variance of the noise, in parts of the signal's, before anything was seen
NOISE_SPREAD = 2.0  # of its prior, a normal one; that of the log lengths is standard normal
JITTER = 1e-6
MOST_FITTED = 160  # measurements that the lengths are fitted to; half of them the fastest
ITERATIONS = 30


class GaussianProcess:
    """features: [N, F] of all candidates, from 0 to 1."""

    def __init__(self, features: np.ndarray) -> None:
        self.features = features
        self.lengths = np.ones(features.shape[1])
        self.noise = np.exp(NOISE)
        self._forget()

    def _forget(self) -> None:
        self.rows: list[int] = []  # the candidates that were measured
        self.factor = np.zeros((0, 0))  # Cholesky, [n, n]
        self.solved = np.zeros((0, len(self.features)), dtype=np.float32)  # the factor's inverse times it

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
            _loss, start, (seen, values[chosen]), "L-BFGS-B", True, bounds=bounds, options={"maxiter": ITERATIONS}
        )
        self.lengths, self.noise = np.exp(found.x[:count]), float(np.exp(found.x[count]))
        self._forget()

    def predict(self, rows: list[int], values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of every candidate, [N] each; `rows` begin with those of the last call."""
        for row in rows[len(self.rows) :]:
            self._add(row)
        whitened = solve_triangular(self.factor, values, lower=True)
        signal = max(float(whitened @ whitened) / len(rows), 1e-12)
        mean = whitened.astype(np.float32) @ self.solved
        reduction = np.einsum("ij,ij->j", self.solved, self.solved)
        return mean, np.sqrt(signal * np.maximum(1 - reduction, 1e-9))

    def _add(self, row: int) -> None:
        kernel = _matern(_squared_distances(self.features[row : row + 1], self.features, self.lengths))[0]
        known = kernel[self.rows]
        column = solve_triangular(self.factor, known, lower=True) if self.rows else np.zeros(0)
        corner = np.sqrt(max(1 + self.noise + JITTER - column @ column, JITTER))
        n = len(self.rows)
        factor = np.zeros((n + 1, n + 1))
        factor[:n, :n], factor[n, :n], factor[n, n] = self.factor, column, corner
        solved = (kernel.astype(np.float32) - column.astype(np.float32) @ self.solved) / np.float32(corner)
        self.factor = factor
        self.solved = np.concatenate([self.solved, solved[None]])
        self.rows.append(row)


def _squared_distances(one: np.ndarray, other: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """[n, F] and [m, F] -> [n, m]."""
    total = np.zeros((len(one), len(other)))
    for column, length in enumerate(lengths):
        total += ((one[:, column, None] - other[None, :, column]) / length) ** 2
    return total


def _matern(squared: np.ndarray) -> np.ndarray:
    root = np.sqrt(5 * squared + 1e-12)
    return (1 + root + root**2 / 3) * np.exp(-root)


def _loss(point: np.ndarray, features: np.ndarray, values: np.ndarray) -> tuple[float, np.ndarray]:
    """Minus the log of the posterior of the log lengths and log noise, up to a constant, and its gradient."""
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
    prior = np.append(point[:count], (point[count] - NOISE) / NOISE_SPREAD)
    scale = np.append(np.ones(count), NOISE_SPREAD)
    return loss + 0.5 * float(prior @ prior), gradient + prior / scale
