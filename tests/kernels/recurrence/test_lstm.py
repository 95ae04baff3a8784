"""The recurrence of an LSTM equals its definition."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from kernels.recurrence.lstm import lstm, lstm_reference


def _problem(length, directions, batch, width):
    torch.default_generator.manual_seed(0)
    shapes = (length, directions, batch, 4 * width), (directions, 4 * width, width), *[(directions, batch, width)] * 2
    return [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]


def _flops(call):
    """FLOPs of a forward and a backward pass."""
    with FlopCounterMode(display=False) as counter:
        call().sum().backward()
    return counter.get_total_flops()


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("length", "directions", "batch", "width"), [(1, 1, 1, 1), (7, 1, 3, 4), (5, 2, 2, 3)])
def test_equals_its_definition(length, directions, batch, width, masked):
    inputs = _problem(length, directions, batch, width)
    mask = torch.rand(length, directions, batch, 1) < 0.6 if masked else None
    found, expected = lstm(*inputs, mask), lstm_reference(*inputs, mask)
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=1e-12)
    scales = [torch.randn_like(out) for out in found]
    for used in ((0, 1), (0,), (1,)):  # the gradient of an unused output is None, not zero
        gradients = [
            torch.autograd.grad(sum((outs[i] * scales[i]).sum() for i in used), inputs, retain_graph=True)
            for outs in (found, expected)
        ]
        torch.testing.assert_close(gradients[0], gradients[1], atol=1e-10, rtol=1e-10)


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
    assert _flops(lambda: lstm(*inputs)[0]) == _flops(lambda: lstm_reference(*inputs)[0]) > 0


def test_the_arguments_stay_as_they_were():
    inputs = [value.detach() for value in _problem(4, 1, 2, 3)]
    before = [value.clone() for value in inputs]
    lstm(*inputs)
    assert all(value.equal(copy) for value, copy in zip(inputs, before, strict=True))
