"""Values before a model sees them: how they are bent and scaled, and which of them it learns from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

SKEWED = 3.0  # the upper half is this many times as wide as the lower one: the logarithm is modelled
LARGEST = 1e100  # a larger value counts as this one


def bounded(value: float) -> float:
    """A value that can be squared."""
    return min(max(value, -LARGEST), LARGEST)


@dataclass(frozen=True)
class Warp:
    """Values as the model sees them: as they are, or the logarithm of the distance from a bound."""

    low: float
    shift: float | None

    def forward(self, values: np.ndarray) -> np.ndarray:
        return values if self.shift is None else np.log(np.maximum(values - self.low, 0.0) + self.shift)

    def back(self, mean: np.ndarray, deviation: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The mean and deviation of the values, from those of a normal distribution of what is modelled."""
        if self.shift is None:
            return mean, deviation
        deviation = np.minimum(deviation, 3.0)
        raised = np.exp(np.minimum(mean, 50.0) + deviation**2 / 2)
        return raised - self.shift + self.low, raised * np.sqrt(np.expm1(deviation**2))


def warp_of(values: np.ndarray) -> Warp:
    low, middle, high = values.min(), np.median(values), values.max()
    if high - middle > SKEWED * (middle - low) and middle > low:
        return Warp(float(low), float(middle - low) / 2)
    return Warp(0.0, None)


def subset(ranked: np.ndarray, most: int) -> np.ndarray:
    """Up to `most` places of `ranked`, the best first: the better half of them is the best, the others are spread."""
    if len(ranked) <= most:
        return ranked
    best, others = ranked[: most // 2], ranked[most // 2 :]
    spread = np.linspace(0, len(others) - 1, most - most // 2).astype(int)
    return np.concatenate([best, others[spread]])


def standard(values: np.ndarray) -> np.ndarray:
    return (values - values.mean()) / (values.std() or 1.0)
