"""Random matrices whose rows stand for independent Gaussian vectors, drawn from a seed.

Choromanski et al. 2021, https://arxiv.org/abs/2009.14794, section 2.4: rows that are orthogonal within blocks of D
keep every row a Gaussian vector and lower the variance of the estimate.
"""

from __future__ import annotations

import torch
from torch import Tensor


def _generator(seed: tuple[int, ...]) -> torch.Generator:
    """A generator for these numbers in this order; neighbouring ones share nothing in practice."""
    mixed = 0
    for number in seed:
        mixed = (mixed * 1_000_003 + number) % 2**63
    return torch.Generator().manual_seed(mixed)


def gaussian_rows(rows: int, width: int, seed: tuple[int, ...]) -> Tensor:
    """[rows, width] of independent N(0, 1), float32; the same for the same numbers in `seed`."""
    return torch.randn(rows, width, generator=_generator(seed), dtype=torch.float64).float()


def orthogonal_rows(rows: int, width: int, seed: tuple[int, ...]) -> Tensor:
    """[rows, width], float32: each row has the law of a Gaussian vector; those of a block of `width` are orthogonal."""
    generator = _generator(seed)
    blocks = [_haar(width, generator) for _ in range(-(-rows // width))]
    directions = torch.cat(blocks)[:rows]
    lengths = torch.randn(rows, width, generator=generator, dtype=torch.float64).norm(dim=1, keepdim=True)
    return (directions * lengths).float()


def _haar(width: int, generator: torch.Generator) -> Tensor:
    """A uniformly distributed orthogonal matrix, [width, width] of float64.

    QR leaves the signs of R to the algorithm, which would prefer some directions; with a positive diagonal it is Haar.
    """
    q, r = torch.linalg.qr(torch.randn(width, width, generator=generator, dtype=torch.float64))
    return q * r.diagonal().sign()
