"""Separable convolution against its formula, tap by tap, and against torch's own convolutions."""

import pytest
import torch
from torch.nn import functional as F

from searchspace.contract import Context
from searchspace.primitives.convolution.separable_convolution import SeparableConvolution, SeparableConvolutionConfig

ACTIVATIONS = {
    "identity": lambda x: x,
    "relu": lambda x: x.clamp_min(0),
    "gelu": lambda x: x * (1 + torch.erf(x / 2**0.5)) / 2,
    "silu": lambda x: x / (1 + (-x).exp()),
    "squared_relu": lambda x: x.clamp_min(0) ** 2,
}


def _plain(block, config, x, padding=None):
    B, T, C = x.shape
    left = config.kernel - 1 if config.causal else config.kernel // 2
    rows = []
    for b in range(B):
        for i in range(T):
            row = torch.zeros(C, dtype=x.dtype)
            for k in range(config.kernel):
                j = i + k - left
                if 0 <= j < T and (padding is None or padding[b, j]):
                    row = row + block.depthwise.weight[:, 0, k] * x[b, j]
            mixed = block.pointwise.weight @ row
            rows.append(mixed if block.pointwise.bias is None else mixed + block.pointwise.bias)
    return ACTIVATIONS[config.activation](torch.stack(rows)).view(B, T, C)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_equals_its_formula(agrees, activation, causal):
    for kernel, bias in ((1, True), (4, False), (7, True)):
        config = SeparableConvolutionConfig(dim=6, causal=causal, kernel=kernel, activation=activation, bias=bias)
        block = SeparableConvolution(config).double()
        for length in (1, 5):
            x = torch.randn(2, length, 6, dtype=torch.float64)
            agrees(block, lambda x: _plain(block, config, x), x)  # noqa: B023
            padding = torch.rand(2, length) < 0.6
            agrees(block, lambda x: _plain(block, config, x, padding), x, Context(padding=padding))  # noqa: B023


def test_equals_two_convolutions_of_torch(agrees):
    config = SeparableConvolutionConfig(dim=6, kernel=9)
    block = SeparableConvolution(config).double()

    def two(x):
        deep = F.conv1d(x.mT, block.depthwise.weight, padding=4, groups=6)
        return F.conv1d(deep, block.pointwise.weight[:, :, None], block.pointwise.bias).mT

    agrees(block, two, torch.randn(2, 11, 6, dtype=torch.float64))


def test_refuses_a_kernel_without_taps():
    with pytest.raises(ValueError, match="kernel must be at least 1, but got 0"):
        SeparableConvolutionConfig(dim=4, kernel=0)
