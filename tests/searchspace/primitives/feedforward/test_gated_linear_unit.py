"""The gated linear unit against its formula and against torch's."""

import pytest
import torch
from torch.nn import functional as F

from searchspace.contract import Context
from searchspace.primitives.feedforward.gated_linear_unit import GatedLinearUnit, GatedLinearUnitConfig


@pytest.mark.parametrize("bias", [True, False])
def test_equals_its_formula_with_the_gate_in_the_second_half(agrees, bias):
    block = GatedLinearUnit(GatedLinearUnitConfig(dim=6, bias=bias)).double()

    def plain(x):
        V, W = block.inner.weight[:6], block.inner.weight[6:]
        b, c = (block.inner.bias[:6], block.inner.bias[6:]) if bias else (0, 0)
        return (x @ V.T + b) / (1 + torch.exp(-(x @ W.T + c)))

    agrees(block, plain, torch.randn(2, 5, 6, dtype=torch.float64))


def test_equals_the_gated_linear_unit_of_torch():
    block, x = GatedLinearUnit(GatedLinearUnitConfig(dim=6)), torch.randn(2, 5, 6)
    torch.testing.assert_close(block(x, Context()), F.glu(block.inner(x)))
