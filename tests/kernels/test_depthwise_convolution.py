"""Depthwise convolution against its definition."""

import pytest
import torch

from kernels.depthwise_convolution import depthwise_convolution, depthwise_convolution_reference


@pytest.mark.parametrize(
    ("batch", "length", "channels", "taps"), [(1, 1, 1, 1), (2, 63, 5, 3), (3, 4, 7, 15), (1, 100, 1, 2)]
)
def test_equals_its_definition(batch, length, channels, taps):
    torch.manual_seed(0)
    x = torch.randn(batch, length + taps - 1, channels, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(channels, taps, dtype=torch.float64, requires_grad=True)
    found, expected = depthwise_convolution(x, weight), depthwise_convolution_reference(x, weight)
    assert found.shape == (batch, length, channels)
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=1e-12)
    scale = torch.randn_like(found)
    gradients = [torch.autograd.grad((out * scale).sum(), (x, weight)) for out in (found, expected)]
    torch.testing.assert_close(gradients[0], gradients[1], atol=1e-10, rtol=1e-10)
