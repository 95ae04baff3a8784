"""A Gaussian process over `Features`: what is alike over all layers, what differs in single layers, and a linear part.

Rasmussen & Williams 2006, "Gaussian Processes for Machine Learning", chapters 2, 4 and 5. The covariance is

    k = M(w) + a M(w + r l) + b L

with M the Matern function of order 5/2, w the weighted squared distance of the `whole` features, l that of the `layer`
features, and L their weighted inner products. Each hole has one weight, for all of its layers. If there are earlier
studies, t p p' is added for each: p is its prediction and t the trust in it. So the values may be any multiple of p,
and t is near 0 for a study that does not help. Weights, amplitudes and trust maximise the likelihood with a weak prior
(resilient backpropagation, Riedmiller & Braun 1993), and are then rounded, so that another machine computes the same.
N rows, P other rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nas.strategies._surrogate.features import Features, Rows

ROOT5 = np.sqrt(5.0)
EXTRA = 4  # parameters besides the weights of the holes: a, r, b, noise
FIRST = np.log([0.3, 1.0, 0.3, 0.01])
PRIOR = np.log([0.3, 1.0, 0.3, 0.005])
WIDTH = np.array([1.5, 1.5, 1.5, 2.0])  # standard deviations of the prior of these, in the logarithm
WEIGHT, WEIGHT_WIDTH = -1.0, 1.5  # of the logarithm of a hole's weight
TRUST, TRUST_WIDTH = -1.0, 2.0  # of the logarithm of the trust in an earlier study
LOWEST, HIGHEST = -9.0, 5.0  # of a logarithm
LEAST_NOISE = 1e-5
DIGITS = 2  # of the logarithms of the parameters
STEPS = 24


@dataclass(frozen=True)
class Kernel:
    """The covariance for one set of parameters: the logarithms of the weights [G], of a, r, b and the noise, and of the
    trust in each earlier study [S]. objective: the one whose predictions by earlier studies count; None without any.
    """

    features: Features
    parameters: np.ndarray
    objective: int | None = None

    @staticmethod
    def default(features: Features, studies: int = 0) -> np.ndarray:
        """The parameters before anything is fitted."""
        return np.concatenate([np.full(features.groups, WEIGHT), FIRST, np.full(studies, TRUST)])

    @property
    def _parts(self) -> tuple[np.ndarray, float, float, float, np.ndarray]:
        """(weights [G], a, r, b, trust [S])."""
        groups = self.features.groups
        a, r, b = np.exp(self.parameters[groups : groups + EXTRA - 1])
        return np.exp(self.parameters[:groups]), a, r, b, np.exp(self.parameters[groups + EXTRA :])

    @property
    def noise(self) -> float:
        return float(np.exp(self.parameters[self.features.groups + EXTRA - 1])) + LEAST_NOISE

    def _earlier(self, rows: Rows) -> np.ndarray | None:
        """What earlier studies predict of the objective, [N, S]."""
        return None if self.objective is None or rows.earlier is None else rows.earlier[:, :, self.objective]

    def between(self, one: Rows, other: Rows) -> np.ndarray:
        """[N, P]."""
        weights, a, r, b, trust = self._parts
        roots = np.sqrt(weights)
        whole = [rows.whole * roots[self.features.whole_groups] for rows in (one, other)]
        layer = [rows.layer * roots[self.features.layer_groups] for rows in (one, other)]
        near, dots = _distances(*whole)
        far, more = _distances(*layer)
        found = matern(near) + a * matern(near + r * far) + b * (dots + more)
        first, second = self._earlier(one), self._earlier(other)
        return found if first is None or second is None else found + (first * trust) @ second.T

    def alone(self, rows: Rows) -> np.ndarray:
        """The prior variance of each row, [N]."""
        weights, a, _, b, trust = self._parts
        linear = (rows.whole**2) @ weights[self.features.whole_groups]
        linear = linear + (rows.layer**2) @ weights[self.features.layer_groups]
        earlier = self._earlier(rows)
        return 1 + a + b * linear + (0.0 if earlier is None else (earlier**2) @ trust)


def matern(squared: np.ndarray) -> np.ndarray:
    distance = ROOT5 * np.sqrt(squared)
    return (1 + distance + (5 / 3) * squared) * np.exp(-distance)


def _distances(one: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(squared distances, inner products), each [N, P]."""
    dots = one @ other.T
    squared = (one**2).sum(1)[:, None] + (other**2).sum(1)[None] - 2 * dots
    return np.maximum(squared, 0.0), dots


class Posterior:
    """What is known after `values` [N] at `rows`. Predictions are in the units of `values`."""

    def __init__(self, kernel: Kernel, rows: Rows, values: np.ndarray) -> None:
        self.kernel, self.rows = kernel, rows
        covariance = kernel.between(rows, rows)
        covariance[np.diag_indices(len(rows))] += kernel.noise
        self.inverse = np.linalg.inv(np.linalg.cholesky(covariance))  # of the lower factor
        self._settle(values)

    def _settle(self, values: np.ndarray) -> None:
        self.values = values
        ones, whitened = self.inverse.sum(1), self.inverse @ values
        self.mean = float(ones @ whitened / (ones @ ones))
        left = whitened - self.mean * ones
        self.scale = float(np.sqrt((left @ left + 1e-3) / (len(values) + 1)))
        self.weights = self.inverse.T @ left
        self._single = self.inverse.astype(np.float32)  # precise enough for deviations, and twice as fast

    def extended(self, rows: Rows, values: np.ndarray | None) -> Posterior:
        """With more results; `values` None takes the prediction, for points whose results are not there yet."""
        if not len(rows):
            return self
        if values is None:
            values = self.predict(rows)[0]
        made = object.__new__(Posterior)
        made.kernel, made.rows = self.kernel, self.rows.joined(rows)
        cross = self.kernel.between(rows, self.rows) @ self.inverse.T  # [P, N]
        own = self.kernel.between(rows, rows) - cross @ cross.T
        own[np.diag_indices(len(rows))] += self.kernel.noise
        corner = np.linalg.inv(np.linalg.cholesky(own))
        count, more = len(self.rows), len(rows)
        made.inverse = np.zeros((count + more, count + more))
        made.inverse[:count, :count] = self.inverse
        made.inverse[count:, count:] = corner
        made.inverse[count:, :count] = -corner @ cross @ self.inverse
        made._settle(np.concatenate([self.values, values]))
        return made

    def explained(self) -> float:
        """The share of the values' variance that is predicted, each value left out (Rasmussen & Williams, eq. 5.12)."""
        errors = self.weights / (self.inverse**2).sum(0)
        return 1 - float((errors**2).sum()) / max(float(((self.values - self.values.mean()) ** 2).sum()), 1e-12)

    def expected(self, rows: Rows) -> np.ndarray:
        """The mean of `predict`, [P]."""
        return self.mean + self.kernel.between(rows, self.rows) @ self.weights

    def predict(self, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
        """(mean, standard deviation) without noise, each [P]."""
        cross = self.kernel.between(rows, self.rows)
        mean = self.mean + cross @ self.weights
        reached = cross.astype(np.float32) @ self._single.T
        variance = np.maximum(self.kernel.alone(rows) - (reached**2).sum(1), 1e-8)
        return mean, self.scale * np.sqrt(variance)


def fitted(
    features: Features,
    rows: Rows,
    values: np.ndarray,
    start: np.ndarray | None,
    steps: int = STEPS,
    objective: int | None = None,
) -> np.ndarray:
    """The parameters that explain `values` [N] best, searched from `start`; see `Kernel`."""
    groups = features.groups
    parts = _Parts(features, rows, objective)
    studies = len(parts.earlier)
    centre = np.concatenate([np.full(groups, WEIGHT), PRIOR, np.full(studies, TRUST)])
    width = np.concatenate([np.full(groups, WEIGHT_WIDTH), WIDTH, np.full(studies, TRUST_WIDTH)])
    parameters = Kernel.default(features, studies) if start is None else start.copy()
    if values.std() < 1e-12:
        return parameters
    step = np.full(len(parameters), 0.4 if start is None else 0.2)
    before = np.zeros(len(parameters))
    best, found = np.inf, parameters
    for _ in range(steps):
        loss, slope = parts.loss(parameters, values)
        loss += float((((parameters - centre) / width) ** 2).sum()) / 2
        slope = slope + (parameters - centre) / width**2
        if loss < best:
            best, found = loss, parameters.copy()
        agrees = np.sign(slope) * np.sign(before)
        step = np.clip(step * np.where(agrees > 0, 1.3, np.where(agrees < 0, 0.5, 1.0)), 1e-3, 1.0)
        before = np.where(agrees < 0, 0.0, slope)
        parameters = np.clip(parameters - step * np.sign(before), LOWEST, HIGHEST)
    return np.round(found, DIGITS)


class _Parts:
    """Squared distances and inner products of each hole, from which covariances and slopes follow."""

    def __init__(self, features: Features, rows: Rows, objective: int | None = None) -> None:
        self.count, self.groups = len(rows), features.groups
        shape = (features.groups, self.count * self.count)
        self.whole, self.layer, self.dots = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        for group in range(features.groups):
            whole = rows.whole[:, features.whole_groups == group]
            layer = rows.layer[:, features.layer_groups == group]
            near, dots = _distances(whole, whole)
            far, more = _distances(layer, layer)
            self.whole[group], self.layer[group] = near.ravel(), far.ravel()
            self.dots[group] = (dots + more).ravel()
        told = None if objective is None or rows.earlier is None else rows.earlier[:, :, objective]
        self.earlier = np.zeros((0, 0)) if told is None else np.array([np.outer(p, p).ravel() for p in told.T])

    def loss(self, parameters: np.ndarray, values: np.ndarray) -> tuple[float, np.ndarray]:
        """(the negative logarithm of the likelihood with the best mean and scale, its slope)."""
        weights = np.exp(parameters[: self.groups])
        a, r, b, noise = np.exp(parameters[self.groups : self.groups + EXTRA])
        trust = np.exp(parameters[self.groups + EXTRA :])
        near, far, dots = weights @ self.whole, weights @ self.layer, weights @ self.dots
        first, first_slope = _matern_slope(near)
        second, second_slope = _matern_slope(near + r * far)
        flat = first + a * second + b * dots
        covariance = (flat + trust @ self.earlier if len(trust) else flat).reshape(self.count, self.count)
        covariance[np.diag_indices(self.count)] += noise + LEAST_NOISE
        try:
            lower = np.linalg.cholesky(covariance)
        except np.linalg.LinAlgError:
            return np.inf, np.zeros(len(parameters))
        whiten = np.linalg.inv(lower)
        inverse = whiten.T @ whiten
        ones = inverse.sum(1)
        left = values - (ones @ values) / ones.sum()
        solved = inverse @ left
        variance = (left @ solved + 1e-3) / (self.count + 1)
        loss = np.log(np.diag(lower)).sum() + 0.5 * (self.count + 1) * np.log(variance)
        pull = ((inverse - np.outer(solved, solved) / variance) / 2).ravel()  # d loss / d covariance
        slope = np.empty(len(parameters))
        inner = pull * (first_slope + a * second_slope)
        outer = pull * (a * r * second_slope)
        slope[: self.groups] = weights * (self.whole @ inner + self.layer @ outer + self.dots @ (b * pull))
        slope[self.groups] = a * (pull @ second)
        slope[self.groups + 1] = outer @ far
        slope[self.groups + 2] = b * (pull @ dots)
        slope[self.groups + 3] = noise * np.trace(pull.reshape(self.count, self.count))
        if len(trust):
            slope[self.groups + EXTRA :] = trust * (self.earlier @ pull)
        return float(loss), slope


def _matern_slope(squared: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The Matern function and its derivative by the squared distance."""
    distance = ROOT5 * np.sqrt(squared)
    decay = np.exp(-distance)
    return (1 + distance + (5 / 3) * squared) * decay, -(5 / 6) * (1 + distance) * decay
