"""The task of the depth benchmark, and its line through the figures."""

import random

import pytest
import torch

from benchmarks.depth import BLANK, CELLS, EASY, HARD, Filler, slope
from searchspace.contract import Context


@pytest.mark.parametrize("kind", [EASY, HARD], ids=lambda kind: kind.name)
def test_a_blank_cell_takes_the_nearest_letter_before_it(kind):
    cells, letters = kind.draw(random.Random(0), 3)
    assert cells.shape == letters.shape == (3, CELLS)
    for row, expected in zip(cells.tolist(), letters.tolist(), strict=True):
        shown = [next(cell for cell in reversed(row[: i + 1]) if cell != BLANK) for i in range(CELLS)]
        assert shown == expected


def test_hard_rows_have_longer_runs_of_blanks():
    blanks = [(kind.draw(random.Random(0), 20)[0] == BLANK).float().mean() for kind in (EASY, HARD)]
    assert 2 * blanks[0] < blanks[1]


def test_the_line_of_least_squares():
    assert slope((2, 4, 8), [7, 11, 19]) == pytest.approx(2)


@torch.no_grad()
def test_what_is_timed_gives_the_same_numbers():
    torch.default_generator.manual_seed(0)
    model = Filler().eval()
    torch.nn.init.normal_(model.halting.halt.weight)
    cells, _ = HARD.draw(random.Random(0), 2)
    torch.testing.assert_close(model(cells, Context()), model.train()(cells, Context()))
