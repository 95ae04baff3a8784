"""Helpers for scores that depend on the distance between query and key: the waves of distances, and the relative shift.

Dai et al. 2019, "Transformer-XL", https://arxiv.org/abs/1901.02860, section 3.3 and appendix B. The wave of distance t
is R_t = [sin(t f) | cos(t f)] with f_m = 10000^(-2m/C): first all sines, then all cosines. Funnel-Transformer writes
the exponent as -m/(C/2), which is the same.

A score that depends only on the distance is computed once per query and distance. The columns are ordered by falling
distance. `relative_shift` then moves each row so that every score is in the column of its key. C width, n queries, K
keys, R columns.
"""

from __future__ import annotations

import torch
from torch import Tensor

FREQUENCY_BASE = 10000.0


def falling(largest: int, columns: int, device: torch.device | None = None) -> Tensor:
    """The distances largest, largest - 1, ...: [columns] of int64. Positive distances are in the past."""
    return torch.arange(largest, largest - columns, -1, device=device)


def waves(distances: Tensor, width: int, dtype: torch.dtype) -> Tensor:
    """distances: [R], of any sign -> [R, width], first the sines, then the cosines."""
    precise = torch.promote_types(dtype, torch.float32)
    pairs = torch.arange(width // 2, device=distances.device, dtype=precise)
    angles = distances.to(precise)[:, None] * FREQUENCY_BASE ** (-2 * pairs / width)  # [R, width / 2]
    return torch.cat([angles.sin(), angles.cos()], dim=1).to(dtype)


def columns(queries: int, keys: int, *, causal: bool, step: int = 1) -> int:
    """The number of distances that `relative_shift` needs, from the largest (last query to first key) downwards.

    If `causal`, distances that no query may read are left out, except for the `step` columns that the shift itself
    needs.
    """
    return keys + step * (1 if causal else queries)


def relative_shift(scores: Tensor, keys: int, step: int = 1) -> Tensor:
    """scores: [..., n, R] by falling distance -> [..., n, K] by key. It returns a view and copies nothing.

    Column r of every row holds the score of distance d0 - r. d0 is the distance from the last query to the first key.
    Each query is `step` positions after the previous one, so the score of row i and key j is in column step * (n - 1 -
    i) + j. With the columns of `columns(..., causal=True)`, entries in a query's future hold arbitrary scores and must
    be masked.

    Raises ValueError if there are fewer than keys + step columns.
    """
    *batch, n, R = scores.shape
    if keys + step > R:
        raise ValueError(f"relative_shift needs keys + step columns or more, but got {R} for {keys} keys, step {step}.")
    # View the memory as rows that are `step` shorter: each row then starts `step` columns earlier than the one before.
    flat = scores.flatten(-2).narrow(-1, step * (n - 1), n * (R - step))
    return flat.view(*batch, n, R - step)[..., :keys]


def check_waves(dim: int) -> None:
    """Raises ValueError if `dim` is odd: it must split into sines and cosines."""
    if dim % 2:
        raise ValueError(f"Waves of distances are pairs of sine and cosine, so dim must be even, but got {dim}.")
