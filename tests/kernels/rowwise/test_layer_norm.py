"""Layer normalisation equals PyTorch's own, with and without a residual."""

import pytest
import torch
from torch.nn import functional as F

from kernels.rowwise.layer_norm import OPERATION, add_layer_norm

FUSED = [name for name in OPERATION.implementations if name not in ("torch", "compiled")]


def normed(implementation, *args, **kwargs):
    each = OPERATION.implementations[implementation]
    return each.call(*args, **kwargs, **each.default)


@pytest.mark.parametrize("parameters", ["gain and bias", "gain", "bias", "none"])
@pytest.mark.parametrize("shape", [(1, 1), (7,), (2, 3, 17)], ids=str)
@pytest.mark.parametrize("implementation", FUSED)
def test_equals_pytorch(implementation, shape, parameters):
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(shape[-1], dtype=torch.float64, requires_grad=True) if "gain" in parameters else None
    bias = torch.randn(shape[-1], dtype=torch.float64, requires_grad=True) if "bias" in parameters else None
    factors, inputs = torch.randn_like(x), [each for each in (x, weight, bias) if each is not None]
    outs = normed(implementation, x, weight, bias, 1e-5), F.layer_norm(x, x.shape[-1:], weight, bias, 1e-5)
    found, expected = ((y, *torch.autograd.grad((y * factors).sum(), inputs)) for y in outs)
    torch.testing.assert_close(found, expected, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("read", ["both", "norm", "sum"])
@pytest.mark.parametrize("implementation", FUSED)
def test_the_sum_and_its_norm_pass_gradients_to_both_summands(implementation, read):
    x, residual, weight, bias = (
        torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in ((4, 9), (4, 9), (9,), (9,))
    )
    total = x + residual
    results = []
    for y, added in (
        normed(implementation, x, weight, bias, 1e-5, residual),
        (F.layer_norm(total, (9,), weight, bias, 1e-5), total),
    ):
        torch.testing.assert_close(added, total, atol=0, rtol=0)
        value = (y.square().sum() if read != "sum" else 0) + (added.sin().sum() if read != "norm" else 0)
        inputs = (x, residual, weight, bias)
        results.append((y, *torch.autograd.grad(value, inputs, retain_graph=True, materialize_grads=True)))
    torch.testing.assert_close(*results, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("implementation", FUSED)
def test_the_norm_is_that_of_the_sum_as_it_is_handed_on(implementation):
    """The sum is rounded to the dtype of x before the norm reads it."""
    x, residual = torch.randn(5, 40).half(), torch.randn(5, 40).half()  # Triton's interpreter truncates bfloat16
    y, total = normed(implementation, x, None, None, 1e-5, residual)
    assert torch.equal(total, x + residual)
    expected = F.layer_norm((x + residual).double(), (40,))
    torch.testing.assert_close(y.double(), expected, atol=0, rtol=torch.finfo(torch.float16).eps)


@pytest.mark.parametrize("implementation", FUSED)
def test_a_mean_far_from_zero_costs_no_precision(implementation):
    x = torch.randn(4, 64, dtype=torch.float64) + 1e6
    torch.testing.assert_close(normed(implementation, x), F.layer_norm(x, (64,)), atol=1e-8, rtol=1e-8)


def test_summands_must_be_alike():
    with pytest.raises(
        ValueError, match=r"must have the same shape and dtype, but got \[2, 8\] of torch.float32 and \[1, 8\]"
    ):
        add_layer_norm(torch.ones(2, 8), torch.ones(1, 8))
