"""Axial positions against their definition, position by position."""

import pytest
import torch

from searchspace.contract import Context
from searchspace.primitives.position.axial import Axial, AxialConfig


def axial(**fields) -> Axial:
    torch.default_generator.manual_seed(0)
    return Axial(AxialConfig(**{"dim": 8, "rows": 4, "columns": 5, **fields})).double()


@pytest.mark.parametrize("combine", ["concatenate", "sum"])
def test_each_position_has_the_vectors_of_its_row_and_column(agrees, combine: str) -> None:
    module = axial(combine=combine, row_share=0.25)

    def plain(x: torch.Tensor) -> torch.Tensor:
        added = []
        for p in range(x.shape[1]):
            row, column = module.rows[p // 5], module.columns[p % 5]
            added.append(row + column if combine == "sum" else torch.cat([row, column]))
        return x + torch.stack(added)

    agrees(module, plain, torch.randn(2, 20, 8, dtype=torch.float64))


def test_positions_count_on_in_a_stream() -> None:
    module, x = axial(), torch.randn(1, 20, 8, dtype=torch.float64)
    later = module(x[:, 7:], Context(positions=torch.arange(7, 20)))
    torch.testing.assert_close(later, module(x, Context())[:, 7:])


def test_no_two_places_of_the_grid_are_alike_and_the_tables_are_small() -> None:
    module = axial(rows=16, columns=16)
    vectors = module(torch.zeros(1, 256, 8, dtype=torch.float64), Context())[0]
    assert len(vectors.unique(dim=0)) == 256
    assert sum(parameter.numel() for parameter in module.parameters()) == 16 * 8


@pytest.mark.parametrize(("share", "widths"), [(0.25, (2, 6)), (0.5, (4, 4)), (0.3, (2, 6))])
def test_the_share_splits_the_channels(share: float, widths: tuple[int, int]) -> None:
    assert AxialConfig(dim=8, row_share=share).widths == widths
    assert AxialConfig(dim=8, row_share=share, combine="sum").widths == (8, 8)


def test_a_position_beyond_the_grid_is_refused() -> None:
    with pytest.raises(ValueError, match=r"Position 20 .* beyond the 4 x 5 axial positions"):
        axial()(torch.zeros(1, 21, 8, dtype=torch.float64), Context())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"rows": 0}, "rows must be at least 1"),
        ({"columns": 0}, "columns must be at least 1"),
        ({"row_share": 0.0}, "must leave channels"),
        ({"row_share": 0.99}, "must leave channels"),
        ({"row_share": 1.0}, "row_share must lie"),
    ],
)
def test_refuses_values_that_make_no_sense(fields: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AxialConfig(dim=8, **fields)
