"""Convolution against its formula, tap by tap."""

import pytest
import torch

from searchspace.contract import Context
from searchspace.primitives.convolution.convolution import Convolution, ConvolutionConfig


def _plain(block, x, padding=None):
    config, (B, T, C) = block.config, x.shape
    left = config.kernel - 1 if config.causal else config.kernel // 2
    batch = []
    for b in range(B):
        rows = []
        for i in range(T):
            row = torch.zeros(C, dtype=x.dtype) if block.bias is None else block.bias
            for k in range(config.kernel):
                j = i + k - left
                if 0 <= j < T and (padding is None or padding[b, j]):
                    taps = block.weight[:, :, k]
                    row = row + (taps[:, 0] * x[b, j] if config.kind == "depthwise" else taps @ x[b, j])
            rows.append(row)
        batch.append(torch.stack(rows))
    return torch.stack(batch)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("kind", ["depthwise", "full"])
@pytest.mark.parametrize("kernel", [1, 2, 3, 7])
def test_equals_its_formula(agrees, kernel, kind, causal):
    block = Convolution(ConvolutionConfig(dim=6, causal=causal, kernel=kernel, kind=kind, bias=True)).double()
    for length in (1, 5):
        x = torch.randn(2, length, 6, dtype=torch.float64)
        agrees(block, lambda x: _plain(block, x), x)
        padding = torch.rand(2, length) < 0.6
        agrees(block, lambda x: _plain(block, x, padding), x, Context(padding=padding))  # noqa: B023


def test_outputs_vary_as_the_inputs_do_at_any_kernel():
    torch.default_generator.manual_seed(0)
    for kind in ("depthwise", "full"):
        for kernel in (1, 31):
            block = Convolution(ConvolutionConfig(dim=64, causal=True, kernel=kernel, kind=kind))
            spread = block(torch.randn(8, 100, 64), Context()).std()
            assert 0.4 < spread < 0.8  # 1 / sqrt(3), from a uniform weight
