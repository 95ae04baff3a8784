"""Normalisations against their formulas."""

import pytest
import torch

from searchspace.contract import Context
from searchspace.primitives.norm.layer_norm import LayerNorm, LayerNormConfig
from searchspace.primitives.norm.none import NoNorm, NoNormConfig
from searchspace.primitives.norm.rms_norm import RmsNorm, RmsNormConfig


def _trained(block):
    """With gains and biases that are no longer one and zero."""
    for parameter in block.parameters():
        torch.nn.init.normal_(parameter)
    return block


@pytest.mark.parametrize("bias", [True, False])
def test_layer_norm_equals_its_formula(agrees, bias):
    block = _trained(LayerNorm(LayerNormConfig(dim=6, bias=bias)).double())

    def plain(x):
        centred = x - x.sum(2, keepdim=True) / 6
        variance = (centred**2).sum(2, keepdim=True) / 6
        return centred / (variance + 1e-5) ** 0.5 * block.gain + (block.bias if bias else 0.0)

    agrees(block, plain, torch.randn(2, 5, 6, dtype=torch.float64))


def test_rms_norm_equals_its_formula(agrees):
    block = _trained(RmsNorm(RmsNormConfig(dim=6)).double())
    x = torch.randn(2, 5, 6, dtype=torch.float64)
    agrees(block, lambda x: x / ((x**2).sum(2, keepdim=True) / 6 + 1e-6) ** 0.5 * block.gain, x)


@pytest.mark.parametrize("block", [LayerNorm(LayerNormConfig(dim=512)), RmsNorm(RmsNormConfig(dim=512))])
def test_statistics_are_taken_in_float32(block):
    # In bfloat16 the sum of 512 squares would stop growing at 256, and a mean of 30 would swallow the variance.
    x = (30 + torch.randn(4, 3, 512)).bfloat16()
    found = block.bfloat16()(x, Context())
    expected = block.float()(x.float(), Context())
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), expected, atol=0.0, rtol=2**-7)


def test_none_leaves_x_alone():
    x = torch.randn(2, 3, 4)
    assert NoNorm(NoNormConfig(dim=4))(x, Context()) is x


def test_refuses_a_division_by_zero():
    for config in (LayerNormConfig, RmsNormConfig):
        with pytest.raises(ValueError, match="eps must be above 0"):
            config(dim=4, eps=0.0)
