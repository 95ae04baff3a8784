"""Gated activations: every form, both orders of the halves, and PyTorch's own `glu`."""

import pytest
import torch
from torch.nn import functional as F

from kernels.rowwise.gated_activation import OPERATION, OWN, gated_activation, gated_activation_reference

RUNNING = [name for name in OPERATION.implementations if name != "compiled"]


def of(implementation, *args, **configuration):
    each = OPERATION.implementations[implementation]
    return each.call(*args, **{**each.default, **configuration})


def with_gradient(y, hidden, factors):
    return y, *torch.autograd.grad((y * factors).sum(), hidden)


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("gate", OWN)
@pytest.mark.parametrize("implementation", RUNNING)
def test_every_gate_is_its_definition(implementation, gate, first):
    hidden = (3 * torch.randn(2, 3, 14, dtype=torch.float64)).requires_grad_()
    factors = torch.randn(2, 3, 7, dtype=torch.float64)
    found = with_gradient(of(implementation, hidden, gate, first), hidden, factors)
    expected = with_gradient(gated_activation_reference(hidden, gate, first), hidden, factors)
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("implementation", RUNNING)
def test_the_second_half_gates_as_in_glu(implementation):
    hidden = torch.randn(4, 10, dtype=torch.float64)
    torch.testing.assert_close(of(implementation, hidden, "sigmoid", False), F.glu(hidden))


@pytest.mark.parametrize(("block", "rows", "width"), [(256, 3, 300), (512, 1, 2), (256, 2, 512)])
def test_a_row_may_take_several_blocks(block, rows, width):
    hidden = torch.randn(rows, width * 2, dtype=torch.float64, requires_grad=True)
    factors = torch.randn(rows, width, dtype=torch.float64)
    found = with_gradient(of("triton", hidden, "silu", True, block=block), hidden, factors)
    expected = with_gradient(gated_activation_reference(hidden), hidden, factors)
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("gate", OWN)
@pytest.mark.parametrize("implementation", RUNNING)
def test_large_numbers_stay_finite(implementation, gate):
    hidden = torch.tensor([[-1e4, 1e4, 0.0, 1.0, 1.0, 1.0]], dtype=torch.float64, requires_grad=True)
    y = of(implementation, hidden, gate)
    assert y.isfinite().all()
    assert torch.autograd.grad(y.sum(), hidden)[0].isfinite().all()


def test_the_arguments_are_checked():
    with pytest.raises(ValueError, match=r"gate must be one of sigmoid, relu, .* but got 'swish'"):
        gated_activation(torch.ones(2, 4), "swish")
    with pytest.raises(ValueError, match="an even width, but it has 5"):
        gated_activation(torch.ones(2, 5))
