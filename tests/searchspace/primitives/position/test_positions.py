"""Positions against their formulas, and what each promises of distances."""

import cmath
import math

import pytest
import torch

from searchspace.primitives.position.alibi import Alibi, AlibiConfig, slopes
from searchspace.primitives.position.grid import Grid, GridConfig
from searchspace.primitives.position.learned import Learned, LearnedConfig, resized
from searchspace.primitives.position.none import NoPosition, NoPositionConfig
from searchspace.primitives.position.rotary import Rotary, RotaryConfig
from searchspace.primitives.position.sinusoidal import Sinusoidal, SinusoidalConfig, sinusoid

PLACES = torch.tensor([0, 1, 2, 17, 500])


@pytest.mark.parametrize("layout", ["halves", "interleaved"])
def test_rotary_is_a_product_of_complex_numbers(layout):
    heads = torch.randn(2, 3, 5, 6, dtype=torch.float64)
    turned = Rotary(RotaryConfig(dim=18, layout=layout, base=100.0)).rotate(heads, PLACES)
    for t, place in enumerate(PLACES.tolist()):
        for m in range(3):
            first, second = (m, m + 3) if layout == "halves" else (2 * m, 2 * m + 1)
            before = complex(heads[1, 2, t, first], heads[1, 2, t, second])
            after = before * cmath.exp(1j * place * 100.0 ** (-2 * m / 6))
            assert turned[1, 2, t, first].item() == pytest.approx(after.real, abs=1e-12)
            assert turned[1, 2, t, second].item() == pytest.approx(after.imag, abs=1e-12)


@pytest.mark.parametrize("layout", ["halves", "interleaved"])
def test_rotary_scores_depend_on_distance_alone(layout):
    q, k = torch.randn(2, 1, 1, 1, 8, dtype=torch.float64)
    rotary = Rotary(RotaryConfig(dim=8, layout=layout))

    def score(i, j):
        turned = rotary.rotate(q, torch.tensor([i])) * rotary.rotate(k, torch.tensor([j]))
        return turned.sum().item()

    assert score(9, 4) == pytest.approx(score(1005, 1000), abs=1e-12)
    assert score(9, 4) != pytest.approx(score(9, 5), abs=1e-6)


def test_rotary_layouts_differ_by_a_permutation():
    heads = torch.randn(1, 1, 5, 6, dtype=torch.float64)
    order = [0, 2, 4, 1, 3, 5]  # interleaved pairs, put side by side
    halves = Rotary(RotaryConfig(dim=6)).rotate(heads[..., order], PLACES)
    interleaved = Rotary(RotaryConfig(dim=6, layout="interleaved")).rotate(heads, PLACES)
    torch.testing.assert_close(halves, interleaved[..., order])


def test_rotary_refuses_heads_that_are_no_pairs():
    with pytest.raises(ValueError, match="width must be even, but it is 5"):
        Rotary(RotaryConfig(dim=10)).rotate(torch.randn(1, 2, 3, 5), torch.arange(3))


def test_sinusoidal_equals_both_published_formulas():
    table = sinusoid(PLACES, 8, dtype=torch.float64)
    variant = sinusoid(PLACES, 8, "halves", dtype=torch.float64)
    for t, place in enumerate(PLACES.tolist()):
        for m in range(4):
            angle = place * 10000 ** (-2 * m / 8)
            assert table[t, 2 * m].item() == pytest.approx(math.sin(angle), abs=1e-12)
            assert table[t, 2 * m + 1].item() == pytest.approx(math.cos(angle), abs=1e-12)
            angle = place * 10000 ** (-m / 3)
            assert variant[t, m].item() == pytest.approx(math.sin(angle), abs=1e-12)
            assert variant[t, m + 4].item() == pytest.approx(math.cos(angle), abs=1e-12)
    assert sinusoid(PLACES, 2, "halves").isfinite().all()


def test_sinusoidal_is_added_to_the_input():
    x = torch.randn(2, 5, 8)
    embedded = Sinusoidal(SinusoidalConfig(dim=8)).embed(x, PLACES)
    torch.testing.assert_close(embedded - x, sinusoid(PLACES, 8).expand_as(x), atol=1e-6, rtol=0)


def test_learned_adds_a_row_a_position_and_refuses_what_lies_beyond_its_table():
    learned, x = Learned(LearnedConfig(dim=4, length=6)), torch.zeros(2, 3, 4)
    assert learned.embed(x, torch.tensor([3, 4, 5]))[1].equal(learned.table[3:])
    with pytest.raises(ValueError, match=r"Position 6 \(counted from 0\) is beyond the 6 learned positions"):
        learned.embed(x, torch.tensor([4, 5, 6]))


def test_alibi_slopes_are_the_published_ones():
    assert slopes(8) == [2.0**-power for power in range(1, 9)]
    assert slopes(12) == [2.0**-power for power in range(1, 9)] + [2.0 ** -(n + 0.5) for n in range(4)]
    assert slopes(1) == [2.0**-8]
    for heads in range(1, 40):
        assert len(set(slopes(heads))) == heads


def test_alibi_falls_with_distance_both_ways():
    bias = Alibi(AlibiConfig(dim=8)).bias(4, torch.tensor([5, 6]), torch.arange(10))
    assert bias.shape == (4, 2, 10)
    for h, rate in enumerate(slopes(4)):
        assert bias[h, 1].tolist() == [-rate * abs(6 - j) for j in range(10)]


def test_none_leaves_everything_alone():
    none, x, heads = NoPosition(NoPositionConfig(dim=4)), torch.randn(2, 5, 4), torch.randn(2, 2, 5, 2)
    assert none.embed(x, PLACES) is x
    assert none.rotate(heads, PLACES) is heads
    assert none.bias(2, PLACES, PLACES) is None


@pytest.mark.parametrize("front", [0, 1])
def test_positions_of_patches_are_interpolated_for_another_resolution(front):
    learned = Learned(LearnedConfig(dim=2, length=front + 6)).double()
    rows, columns = torch.meshgrid(torch.arange(2.0), torch.arange(3.0), indexing="ij")
    plane = torch.stack([rows.flatten(), columns.flatten()], dim=1).double()  # each patch holds its own position
    with torch.no_grad():
        learned.table[front:] = plane
    class_position = learned.table[:front].clone()
    learned.resize((2, 3), (4, 6), mode="bilinear")
    assert learned.config.length == len(learned.table) == front + 24
    assert learned.table[:front].equal(class_position)
    grid = learned.table[front:].view(4, 6, 2)
    # Twice as fine: a new patch is a quarter of an old one from its middle, and none is beyond the last middle.
    assert grid[:, 0, 0].tolist() == pytest.approx([0, 0.25, 0.75, 1])
    assert grid[0, :, 1].tolist() == pytest.approx([0, 0.25, 0.75, 1.25, 1.75, 2])
    learned.embed(torch.zeros(1, front + 24, 2, dtype=torch.float64), torch.arange(front + 24))


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_interpolated_positions_are_torchs_and_the_same_resolution_changes_nothing(mode):
    table = torch.randn(1 + 12, 5, dtype=torch.float64)
    image = table[1:].view(3, 4, 5).permute(2, 0, 1)[None]
    expected = torch.nn.functional.interpolate(image, size=(7, 2), mode=mode)
    torch.testing.assert_close(resized(table, (3, 4), (7, 2), mode)[1:], expected[0].permute(1, 2, 0).reshape(14, 5))
    torch.testing.assert_close(resized(table, (3, 4), (3, 4), mode), table)
    with pytest.raises(ValueError, match="13 learned positions are not a grid of 3 x 3"):
        resized(table, (3, 3), (7, 2), mode)


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("kind", ["learned", "sinusoidal"])
def test_a_place_on_a_grid_is_its_row_and_its_column(kind, first):
    grid = Grid(GridConfig(dim=8, rows=2, columns=3, kind=kind, first=first)).double()
    length = 6 + first
    embedded = grid.embed(torch.zeros(1, length, 8, dtype=torch.float64), torch.arange(length))[0]
    for t in range(length):
        if first and t == 0:
            assert embedded[0].abs().max() == 0
            continue
        row, column = divmod(t - first, 3)
        if kind == "learned":
            expected = grid.rows[row] + grid.columns[column]
        else:
            angles = [place * 10000.0 ** (-2 * m / 4) for place in (row, column) for m in range(2)]
            expected = torch.tensor([f(a) for a in angles for f in (math.sin, math.cos)], dtype=torch.float64)
        torch.testing.assert_close(embedded[t], expected, atol=1e-12, rtol=0)


def test_a_grid_refuses_what_lies_beyond_it():
    grid, x = Grid(GridConfig(dim=4, rows=2, columns=3, first=True)), torch.zeros(1, 8, 4)
    grid.embed(x[:, :7], torch.arange(7))
    with pytest.raises(ValueError, match=r"Position 6 of the grid .* is beyond its 2 rows of 3 columns"):
        grid.embed(x, torch.arange(8))
