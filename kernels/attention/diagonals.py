"""Scores by distance instead of by key: the diagonals of a matrix as columns, without an index for each number.

Row r of queries reads `width` keys, the first of them in column r; so distance s from there is column r + s. If the
rows are stored with one number more than the matrix has, a view turns one form into the other: r (K + 1) + s = r K + (r
+ s). R rows, K columns, W width of the band; R + W - 1 <= K. Leading axes are batches.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F


def by_distance(matrix: Tensor, width: int) -> Tensor:
    """[.., R, K] -> [.., R, W]: out[r, s] = matrix[r, r + s]."""
    rows, columns = matrix.shape[-2:]
    flat = F.pad(matrix.flatten(-2), (0, rows))
    return flat.unflatten(-1, (rows, columns + 1))[..., :width]


def by_key(band: Tensor, columns: int) -> Tensor:
    """[.., R, W] -> [.., R, K], zero outside of the band: out[r, r + s] = band[r, s]."""
    rows, width = band.shape[-2:]
    flat = F.pad(band, (0, columns + 1 - width)).flatten(-2)
    return flat[..., : rows * columns].unflatten(-1, (rows, columns))
