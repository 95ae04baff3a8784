"""The diagonals of a matrix as columns, and back."""

import pytest
import torch

from kernels.attention.diagonals import by_distance, by_key


@pytest.mark.parametrize(("rows", "columns", "width"), [(1, 1, 1), (3, 7, 5), (5, 6, 2), (4, 9, 3)])
def test_each_row_starts_one_column_after_the_row_above(rows, columns, width):
    matrix = torch.randn(2, 3, rows, columns)
    band = by_distance(matrix, width)
    expected = torch.stack([matrix[..., r, r : r + width] for r in range(rows)], dim=2)
    assert band.equal(expected)
    back = by_key(band, columns)
    inside = torch.zeros(rows, columns, dtype=torch.bool)
    for r in range(rows):
        inside[r, r : r + width] = True
    assert back.equal(torch.where(inside, matrix, 0.0))
