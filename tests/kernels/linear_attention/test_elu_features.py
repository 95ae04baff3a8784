"""elu(x) + 1 in place equals the definition, with first and second gradients, and keeps only the result."""

import torch

from kernels.linear_attention.elu_features import elu_features, elu_features_reference
from searchspace.testing import kept_bytes


def test_values_and_gradients_are_those_of_the_definition():
    x = torch.randn(3, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    y, expected = elu_features(x.clone()), elu_features_reference(x)
    torch.testing.assert_close(y, expected, atol=1e-12, rtol=0)
    (grad,), (other,) = (torch.autograd.grad(out.pow(2).sum(), x, create_graph=True) for out in (y, expected))
    torch.testing.assert_close(grad, other, atol=1e-12, rtol=0)
    second, also = (torch.autograd.grad(first.pow(3).sum(), x)[0] for first in (grad, other))
    torch.testing.assert_close(second, also, atol=1e-12, rtol=0)


def test_only_the_result_is_kept():
    x = torch.randn(5, 8, requires_grad=True)
    assert kept_bytes(lambda: elu_features(x * 1)) == 5 * 8 * 4
