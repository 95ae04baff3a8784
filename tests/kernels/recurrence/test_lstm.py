"""The recurrence of an LSTM equals its definition."""

import pytest
import torch

from kernels.recurrence.lstm import lstm, lstm_reference
from searchspace.testing import count_flops
from tests.kernels.near import agree


def _problem(length, directions, batch, width):
    torch.default_generator.manual_seed(0)
    shapes = (length, directions, batch, 4 * width), (directions, 4 * width, width), *[(directions, batch, width)] * 2
    return [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("length", "directions", "batch", "width"), [(1, 1, 1, 1), (7, 1, 3, 4), (5, 2, 2, 3)])
def test_equals_its_definition(length, directions, batch, width, masked):
    inputs = _problem(length, directions, batch, width)
    mask = torch.rand(length, directions, batch, 1) < 0.6 if masked else None
    found, expected = lstm(*inputs, mask), lstm_reference(*inputs, mask)
    for used in (slice(2), slice(1), slice(1, 2)):  # the gradient of an unused output is None, not zero
        agree(found[used], expected[used], inputs, 1e-11)


def test_a_state_handed_over_is_the_state_of_the_whole():
    gates, weight, h, c = _problem(9, 2, 3, 4)
    whole_h, whole_c = lstm(gates, weight, h, c)
    first_h, first_c = lstm(gates[:4], weight, h, c)
    second_h, second_c = lstm(gates[4:], weight, first_h[-1], first_c[-1])
    torch.testing.assert_close(torch.cat([first_h, second_h]), whole_h)
    torch.testing.assert_close(torch.cat([first_c, second_c]), whole_c)


def test_is_sound_as_an_operation_and_counts_the_products_of_its_definition():
    inputs = _problem(5, 2, 3, 4)
    torch.library.opcheck(torch.ops.tessera.lstm.default, (*inputs, torch.rand(5, 2, 3, 1) < 0.6))
    torch.library.opcheck(torch.ops.tessera.lstm.default, (*inputs, None))
    assert count_flops(lambda: lstm(*inputs)[0]) == count_flops(lambda: lstm_reference(*inputs)[0]) > (0, 0)
