"""Depthwise convolution against its definition."""

import pytest
import torch

from kernels.depthwise_convolution import SHORT, depthwise_convolution, depthwise_convolution_reference


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


@pytest.mark.parametrize("taps", [1, 3, SHORT, SHORT + 1])
def test_short_and_long_filters_agree_with_the_definition_in_single_precision(taps):
    torch.manual_seed(0)
    whole = torch.randn(2, taps + 42, 5, requires_grad=True)
    x, weight = whole[:, 3:], torch.randn(5, taps, requires_grad=True)  # a slice, as a branch of fewer taps reads
    found, expected = depthwise_convolution(x, weight), depthwise_convolution_reference(x, weight)
    assert found.shape == (2, 40, 5)
    torch.testing.assert_close(found, expected)
    scale = torch.randn_like(found)
    gradients = [torch.autograd.grad((out * scale).sum(), (whole, weight)) for out in (found, expected)]
    torch.testing.assert_close(gradients[0], gradients[1], atol=1e-4, rtol=1e-5)
