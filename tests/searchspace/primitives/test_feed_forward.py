"""Feed-forward against its formula, with the activations written out."""

import math

import pytest
import torch

from searchspace.primitives.feedforward.feed_forward import FeedForward, FeedForwardConfig

ACTIVATIONS = {
    "relu": lambda z: z * (z > 0),
    "gelu": lambda z: z * 0.5 * (1 + torch.erf(z / math.sqrt(2))),
    "silu": lambda z: z / (1 + torch.exp(-z)),
    "squared_relu": lambda z: z * z * (z > 0),
}


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("bias", [True, False])
def test_equals_its_formula(agrees, activation, bias):
    block = FeedForward(FeedForwardConfig(dim=6, expand=3, activation=activation, bias=bias)).double()

    def plain(x):
        w1, w2 = block.inner.weight, block.output.weight
        b1, b2 = (block.inner.bias, block.output.bias) if bias else (0.0, 0.0)
        assert w1.shape == (18, 6)
        return ACTIVATIONS[activation](x @ w1.T + b1) @ w2.T + b2

    agrees(block, plain, torch.randn(2, 5, 6, dtype=torch.float64))


def test_says_what_does_not_fit():
    with pytest.raises(ValueError, match="expand must be at least 1, but got 0"):
        FeedForwardConfig(dim=4, expand=0)
    with pytest.raises(ValueError, match="dropout must lie in"):
        FeedForwardConfig(dim=4, dropout=-0.1)
