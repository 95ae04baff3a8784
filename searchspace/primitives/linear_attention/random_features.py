"""Random matrices with Gaussian rows, drawn from a seed.

Choromanski et al. 2021, https://arxiv.org/abs/2009.14794, section 2.4. Rows can be orthogonal within blocks of D: each
row is still a Gaussian vector, and the variance of the estimate is lower.
"""

from __future__ import annotations

import torch
from torch import Tensor


def _generator(seed: tuple[int, ...]) -> torch.Generator:
    """A generator seeded by these numbers in this order. Similar numbers give independent generators in practice."""
    mixed = 0
    for number in seed:
        mixed = (mixed * 1_000_003 + number) % 2**63
    return torch.Generator().manual_seed(mixed)


def gaussian_rows(rows: int, width: int, seed: tuple[int, ...]) -> Tensor:
    """[rows, width] of independent N(0, 1), float32. The same `seed` gives the same matrix."""
    return torch.randn(rows, width, generator=_generator(seed), dtype=torch.float64).float()


def orthogonal_rows(rows: int, width: int, seed: tuple[int, ...]) -> Tensor:
    """[rows, width], float32. Each row is distributed as a Gaussian vector; rows within a block of `width` are
    orthogonal.
    """
    generator = _generator(seed)
    blocks = [_haar(width, generator) for _ in range(-(-rows // width))]
    directions = torch.cat(blocks)[:rows]
    lengths = torch.randn(rows, width, generator=generator, dtype=torch.float64).norm(dim=1, keepdim=True)
    return (directions * lengths).float()


def _haar(width: int, generator: torch.Generator) -> Tensor:
    """A uniformly distributed orthogonal matrix, [width, width] of float64.

    The signs of R in a QR decomposition depend on the algorithm, which would favour some directions. With a positive
    diagonal of R, the distribution is uniform (Haar).
    """
    q, r = torch.linalg.qr(torch.randn(width, width, generator=generator, dtype=torch.float64))
    return q * r.diagonal().sign()
