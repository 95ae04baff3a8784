"""How much a new point may improve on the known ones: expected improvement and expected hypervolume improvement.

For one objective: Jones et al. 1998, "Efficient Global Optimization". For two: the exact integral over the strips that
the front leaves (Emmerich et al. 2011, "Hypervolume-based expected improvement"), with independent normal predictions.
With more objectives: the mean over directions of the improvement of the hypervolume scalarisation (Golovin & Zhang,
https://arxiv.org/abs/2006.04655).
All objectives are minimised. N points, M objectives.
"""

from __future__ import annotations

import numpy as np

from nas import pareto

DIRECTIONS, SAMPLES, DRAWS = 64, 8, 48
SMALL = 1e-9


def normal(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(distribution function, density) of the standard normal: Abramowitz & Stegun 7.1.26, error below 1.5e-7."""
    z = np.clip(z, -30, 30)
    density = np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi)
    t = 1 / (1 + 0.3275911 * np.abs(z) / np.sqrt(2))
    tail = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    upper = 1 - 0.5 * tail * np.exp(-0.5 * z * z)
    return np.where(z >= 0, upper, 1 - upper), density


def below(limit: np.ndarray, mean: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    """The expectation of max(limit - value, 0) for normal values."""
    deviation = np.maximum(deviation, SMALL)
    z = (limit - mean) / deviation
    share, density = normal(z)
    return np.where(z > 8, limit - mean, deviation * (z * share + density))


def expected(
    mean: np.ndarray, deviation: np.ndarray, known: np.ndarray, corner: float, rng: np.random.Generator
) -> np.ndarray:
    """The expected improvement of each point, [N]. mean, deviation: [N, M]. known: the values found so far, [K, M].

    corner: the reference point has this value in every objective.
    """
    if mean.shape[1] == 1:
        return below(known.min(), mean[:, 0], deviation[:, 0])
    if mean.shape[1] == 2:
        return _of_two(mean, deviation, known, corner)
    return _of_many(mean, deviation, known, corner, rng)


def chance_of_front(mean: np.ndarray, deviation: np.ndarray, known: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """How likely each point is on the front of all points and the known ones: [N], from independent draws."""
    count = np.zeros(len(mean))
    for _ in range(DRAWS):
        drawn = mean + deviation * rng.standard_normal(mean.shape)
        front = pareto.front(np.vstack([drawn, known]))
        count[front[front < len(mean)]] += 1
    return count / DRAWS


def _of_two(mean: np.ndarray, deviation: np.ndarray, known: np.ndarray, corner: float) -> np.ndarray:
    inside = known[(known < corner).all(1)]
    front = inside[pareto.front(inside)]
    front = np.unique(front, axis=0)
    edges = np.append(front[:, 0], corner)
    heights = np.concatenate([[corner], front[:, 1]])
    left = below(edges[None], mean[:, :1], deviation[:, :1])  # [N, K + 1]
    strips = np.diff(left, axis=1, prepend=0.0)
    return (strips * below(heights[None], mean[:, 1:], deviation[:, 1:])).sum(1)


def _of_many(
    mean: np.ndarray, deviation: np.ndarray, known: np.ndarray, corner: float, rng: np.random.Generator
) -> np.ndarray:
    count = mean.shape[1]
    directions = np.abs(rng.standard_normal((DIRECTIONS, count))) + 1e-3
    directions /= np.sqrt((directions**2).sum(1, keepdims=True))

    def reached(values: np.ndarray) -> np.ndarray:  # [..., M] -> [..., DIRECTIONS]
        return np.maximum(corner - values[..., None, :], 0.0).__truediv__(directions).min(-1) ** count

    best = reached(known).max(0)
    noise = rng.standard_normal((SAMPLES, 1, count))
    drawn = mean[None] + noise * deviation[None]
    return np.maximum(reached(drawn) - best, 0.0).mean((0, 2))
