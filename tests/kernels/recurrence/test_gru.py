"""The recurrence of a gated recurrent unit equals its definition."""

import pytest
import torch

from kernels.recurrence.gru import gru, gru_reference
from searchspace.testing import count_flops
from tests.kernels.near import agree


def _problem(length, directions, batch, width, biased):
    torch.default_generator.manual_seed(0)
    shapes = (
        (length, directions, batch, 3 * width),
        (directions, 3 * width, width),
        (directions, width) if biased else None,
        (directions, batch, width),
    )
    return [shape and torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("biased", [True, False], ids=["reset_after", "reset_before"])
@pytest.mark.parametrize(("length", "directions", "batch", "width"), [(1, 1, 1, 1), (7, 1, 3, 4), (5, 2, 2, 3)])
def test_equals_its_definition(length, directions, batch, width, biased, masked):
    inputs = _problem(length, directions, batch, width, biased)
    mask = torch.rand(length, directions, batch, 1) < 0.6 if masked else None
    found, expected = gru(*inputs, mask), gru_reference(*inputs, mask)
    agree(found, expected, [value for value in inputs if value is not None], 1e-11)


@pytest.mark.parametrize("biased", [True, False], ids=["reset_after", "reset_before"])
def test_a_state_handed_over_is_the_state_of_the_whole(biased):
    inputs, weight, bias, h = _problem(9, 2, 3, 4, biased)
    first = gru(inputs[:4], weight, bias, h)
    second = gru(inputs[4:], weight, bias, first[-1])
    torch.testing.assert_close(torch.cat([first, second]), gru(inputs, weight, bias, h))


@pytest.mark.parametrize("biased", [True, False], ids=["reset_after", "reset_before"])
def test_is_sound_as_an_operation_and_counts_the_products_of_its_definition(biased):
    inputs = _problem(5, 2, 3, 4, biased)
    torch.library.opcheck(torch.ops.tessera.gru.default, (*inputs, torch.rand(5, 2, 3, 1) < 0.6))
    torch.library.opcheck(torch.ops.tessera.gru.default, (*inputs, None))
    assert count_flops(lambda: gru(*inputs)) == count_flops(lambda: gru_reference(*inputs)) > (0, 0)


@pytest.mark.parametrize("batch", [1, 3])
def test_agrees_where_no_gradient_is_wanted(batch):
    inputs, weight, bias, h = (
        torch.randn(*shape, dtype=torch.float64) for shape in ((7, 2, batch, 15), (2, 15, 5), (2, 5), (2, batch, 5))
    )
    with torch.no_grad():
        torch.testing.assert_close(gru(inputs, weight, bias, h), gru_reference(inputs, weight, bias, h))
