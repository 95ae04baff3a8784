"""Gated feed-forward against its formula, with the gates written out."""

import math

import pytest
import torch

from searchspace.cost import Shape
from searchspace.primitives.feedforward.feed_forward import FeedForward, FeedForwardConfig
from searchspace.primitives.feedforward.gated_feed_forward import GatedFeedForward, GatedFeedForwardConfig

GATES = {
    "sigmoid": lambda z: 1 / (1 + torch.exp(-z)),
    "relu": lambda z: z * (z > 0),
    "gelu": lambda z: z * 0.5 * (1 + torch.erf(z / math.sqrt(2))),
    "gelu_tanh": lambda z: z * 0.5 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3))),
    "quick_gelu": lambda z: z / (1 + torch.exp(-1.702 * z)),
    "silu": lambda z: z / (1 + torch.exp(-z)),
    "identity": lambda z: z,
}


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("bias", [True, False])
def test_equals_its_formula_with_the_gate_in_the_first_half(agrees, gate, bias):
    block = GatedFeedForward(GatedFeedForwardConfig(dim=6, expand=3, gate=gate, bias=bias)).double()
    hidden = block.output.in_features

    def plain(x):
        W, V = block.inner.weight[:hidden], block.inner.weight[hidden:]
        b, c, d = (block.inner.bias[:hidden], block.inner.bias[hidden:], block.output.bias) if bias else (0, 0, 0)
        return (GATES[gate](x @ W.T + b) * (x @ V.T + c)) @ block.output.weight.T + d

    agrees(block, plain, torch.randn(2, 5, 6, dtype=torch.float64))


@pytest.mark.parametrize(
    ("dim", "expand", "hidden"), [(512, 4, 1368), (96, 4, 256), (16, 4, 40), (4, 1, 8), (384, 3, 768)]
)
def test_hidden_width_is_two_thirds_to_the_nearest_multiple_of_eight(dim, expand, hidden):
    assert GatedFeedForwardConfig(dim=dim, expand=expand).width == hidden


def test_hidden_width_may_be_given_exactly():
    block = GatedFeedForward(GatedFeedForwardConfig(dim=6, hidden=11))
    assert (block.inner.out_features, block.output.in_features) == (22, 11)


def test_has_the_parameters_of_a_feed_forward_block_of_the_same_expansion():
    gated = GatedFeedForward.cost(GatedFeedForwardConfig(dim=512), Shape()).parameters
    plain = FeedForward.cost(FeedForwardConfig(dim=512, bias=False), Shape()).parameters
    assert gated == pytest.approx(plain, rel=0.01)
