"""Separable convolution against its formula, tap by tap, and against torch's own convolutions."""

import pytest
import torch
from torch.nn import functional as F

from searchspace.contract import Context
from searchspace.cost import Shape
from searchspace.errors import SpaceError
from searchspace.model.build import build, cost
from searchspace.primitives.convolution.separable_convolution import SeparableConvolution, SeparableConvolutionConfig
from searchspace.testing import count_flops

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
            row = row if block.depthwise.bias is None else row + block.depthwise.bias
            mixed = block.pointwise.weight @ row
            rows.append(mixed if block.pointwise.bias is None else mixed + block.pointwise.bias)
    return ACTIVATIONS[config.activation](torch.stack(rows)).view(B, T, -1)


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


@pytest.mark.parametrize("width", [0.5, 1.0, 3.0])
def test_with_a_depthwise_bias_and_another_width_it_is_two_convolutions_of_torch(agrees, width):
    options = {"width": width, "depthwise_bias": True, "activation": "silu"}
    config = SeparableConvolutionConfig(dim=6, kernel=3, widens=True, **options)
    block = SeparableConvolution(config).double()
    torch.nn.init.normal_(block.depthwise.bias)

    def two(x):
        deep = F.conv1d(x.mT, block.depthwise.weight, block.depthwise.bias, padding=1, groups=6)
        out = F.silu(F.conv1d(deep, block.pointwise.weight[:, :, None], block.pointwise.bias)).mT
        return torch.cat([out, out.new_zeros(2, 5, max(0, 6 - out.shape[2]))], dim=2)

    x = torch.randn(2, 5, 6, dtype=torch.float64)
    torch.testing.assert_close(block(x, Context()), two(x), atol=1e-9, rtol=1e-9)
    torch.testing.assert_close(_plain(block, config, x), two(x)[..., : int(6 * width)], atol=1e-9, rtol=1e-9)
    cost = SeparableConvolution.cost(config, Shape(batch=2, length=5))
    assert cost.parameters == sum(parameter.numel() for parameter in block.parameters())
    assert (cost.flops, cost.training_flops) == count_flops(lambda: block(x.requires_grad_(), Context()))


def test_a_wider_output_is_the_end_of_a_decoder():
    wide = "{separable_convolution: {width: 2.0}}"
    text = f"kind: decoder\nwidth: 8\nvocabulary: 5\ntie_embeddings: false\nbody: [%s, {wide}]\n"
    model = build(text % "attention")
    assert model(torch.zeros(1, 4, dtype=torch.int64)).shape == (1, 4, 5)
    assert cost(text % "attention").parameters == sum(parameter.numel() for parameter in model.parameters())
    with pytest.raises(SpaceError, match="so only the last block of the body may be of its kind"):
        build(text % wide)


def test_refuses_a_kernel_without_taps_and_widths_that_are_not_possible():
    for width, widens in ((2.0, False), (1.5, True)):
        with pytest.raises(ValueError, match="width must be at most 1, or a whole number in the last block"):
            SeparableConvolutionConfig(dim=4, width=width, widens=widens)
