"""Softmax equals PyTorch's own for large, missing or few numbers."""

import pytest
import torch

from kernels.rowwise.softmax import OPERATION

FUSED = [name for name in OPERATION.implementations if name not in ("torch", "compiled")]


def of(implementation, x):
    each = OPERATION.implementations[implementation]
    return each.call(x, **each.default)


@pytest.mark.parametrize("shape", [(1, 1), (7,), (2, 3, 17), (3, 64)], ids=str)
@pytest.mark.parametrize("implementation", FUSED)
def test_equals_pytorch(implementation, shape):
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    factors = torch.randn_like(x)
    outs = of(implementation, x), x.softmax(-1)
    found, expected = ((y, *torch.autograd.grad((y * factors).sum(), x)) for y in outs)
    torch.testing.assert_close(found, expected, atol=1e-13, rtol=1e-13)


@pytest.mark.parametrize("implementation", FUSED)
def test_nothing_overflows(implementation):
    x = torch.tensor([[1e4, 1e4, -1e4], [-1e38, 1e38, 0.0]])
    assert torch.equal(of(implementation, x), torch.tensor([[0.5, 0.5, 0.0], [0.0, 1.0, 0.0]]))


@pytest.mark.parametrize("implementation", FUSED)
def test_what_is_minus_infinity_has_no_share(implementation):
    x = torch.tensor([[1.0, -torch.inf, 1.0]], requires_grad=True)
    y = of(implementation, x)
    assert torch.equal(y, torch.tensor([[0.5, 0.0, 0.5]]))
    (gradient,) = torch.autograd.grad(y[0, 0], x)
    torch.testing.assert_close(gradient, torch.tensor([[0.25, 0.0, -0.25]]))
