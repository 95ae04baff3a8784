"""Lightweight convolution as a case of depthwise and dynamic convolution. `test_convolutions.py` has the rest."""

import pytest
import torch

from kernels.convolution.depthwise_convolution import depthwise_convolution
from kernels.convolution.dynamic_convolution import dynamic_convolution
from kernels.convolution.lightweight_convolution import lightweight_convolution
from kernels.dispatch.registry import Choice


@pytest.mark.parametrize("config", [None, Choice.of("banded", {"positions": 8})], ids=str)
def test_is_depthwise_with_equal_rows_and_dynamic_with_equal_positions(config):
    torch.default_generator.manual_seed(0)
    x, taps = torch.randn(2, 23, 6, dtype=torch.float64), torch.randn(3, 4, dtype=torch.float64)
    found = lightweight_convolution(x, taps, config=config)
    torch.testing.assert_close(found, depthwise_convolution(x, taps.repeat_interleave(2, dim=0)))
    torch.testing.assert_close(found, dynamic_convolution(x, taps.expand(2, 20, 3, 4)))


def test_says_what_does_not_fit():
    with pytest.raises(ValueError, match="a multiple of the heads of taps, but x has 6, taps 4"):
        lightweight_convolution(torch.zeros(1, 9, 6), torch.zeros(4, 2))
    with pytest.raises(ValueError, match="x must hold 4 neighbours of a position, but has length 3"):
        lightweight_convolution(torch.zeros(1, 3, 6), torch.zeros(2, 5))
