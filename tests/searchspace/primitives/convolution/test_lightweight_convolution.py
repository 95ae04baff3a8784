"""Lightweight and dynamic convolution against their formulas, position by position and tap by tap."""

import math

import pytest
import torch

from searchspace.contract import Context
from searchspace.primitives.convolution.dynamic_convolution import DynamicConvolution, DynamicConvolutionConfig
from searchspace.primitives.convolution.lightweight_convolution import (
    LightweightConvolution,
    LightweightConvolutionConfig,
)
from searchspace.testing import kept_bytes

KINDS = {
    "lightweight": (LightweightConvolution, LightweightConvolutionConfig),
    "dynamic": (DynamicConvolution, DynamicConvolutionConfig),
}


def _built(kind, **fields):
    module, config = KINDS[kind]
    block = module(config(**fields)).double().eval()
    if block.bias is not None:
        torch.nn.init.normal_(block.bias)  # it starts at zero, where its place would not show
    return block


def _share(block, gated, h, real):
    """The K normalised taps of head h at the position whose gated input is `gated`; `real` are those that meet one."""
    K = block.config.kernel
    own = slice(h * K, h * K + K)
    scores = block.taps[h] if isinstance(block.taps, torch.nn.Parameter) else block.taps.weight[own] @ gated
    if getattr(block.config, "taps_bias", False):
        scores = scores + block.taps.bias[own]
    if getattr(block.config, "renormalise", False):
        scores = torch.stack([score if meets else score - math.inf for score, meets in zip(scores, real, strict=True)])
    return scores.exp() / scores.exp().sum()


def _plain(block, x, padding=None):
    config, (B, T, C) = block.config, x.shape
    left = config.kernel - 1 if config.causal else config.kernel // 2
    both = x @ block.input.weight.T + block.input.bias
    gated = both[..., :C] / (1 + (-both[..., C:]).exp())
    batch = []
    for b in range(B):
        for i in range(T):
            near = [i + k - left for k in range(config.kernel)]
            real = [0 <= j < T and (padding is None or bool(padding[b, j])) for j in near]
            taps = [_share(block, gated[b, i], h, real) for h in range(config.heads)]
            channels = []
            for c in range(C):
                number = 0 if block.bias is None else block.bias[c]
                for k in range(config.kernel):
                    if real[k]:
                        number = number + taps[c // (C // config.heads)][k] * gated[b, near[k], c]
                channels.append(torch.as_tensor(number, dtype=x.dtype))
            batch.append(torch.stack(channels))
    return torch.stack(batch).view(B, T, C) @ block.output.weight.T + block.output.bias


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("kernel", [1, 4, 5])
@pytest.mark.parametrize("kind", KINDS)
def test_equals_its_formula(agrees, kind, kernel, causal):
    for heads, length in ((2, 1), (3, 4)):
        block = _built(kind, dim=6, causal=causal, kernel=kernel, heads=heads, channel_bias=heads == 3)
        x = torch.randn(2, length, 6, dtype=torch.float64)
        # With one tap the softmax is 1 whatever it reads, and its gradient zero in both.
        agrees(block, lambda x: _plain(block, x), x)  # noqa: B023
        padding = torch.tensor([[True] * length, [False] + [True] * (length - 1)])
        agrees(block, lambda x: _plain(block, x, padding), x, Context(padding=padding))  # noqa: B023


def test_taps_with_a_bias_equal_their_formula(agrees):
    """As in ESPnet, and in fairseq with `bias: true` of the taps."""
    block = _built("dynamic", dim=6, causal=True, kernel=3, heads=2, taps_bias=True)
    assert block.taps.bias.abs().max() > 0
    agrees(block, lambda x: _plain(block, x), torch.randn(2, 4, 6, dtype=torch.float64))


@pytest.mark.parametrize("causal", [True, False])
def test_renormalised_taps_are_those_that_meet_a_real_position(agrees, causal):
    block = _built("dynamic", dim=6, causal=causal, kernel=5, heads=2, renormalise=True)
    x = torch.randn(2, 4, 6, dtype=torch.float64)  # shorter than the kernel
    agrees(block, lambda x: _plain(block, x), x)
    padding = torch.tensor([[True, False, True, True], [True, True, True, False]])
    agrees(block, lambda x: _plain(block, x, padding), x, Context(padding=padding))
    torch.nn.init.zeros_(block.taps.weight)
    gated = torch.nn.functional.glu(block.input(x), dim=2)
    torch.testing.assert_close(block(x, Context())[:, 0], block.output(gated[:, : 1 if causal else 3].mean(1)))


def test_with_a_head_for_each_channel_and_equal_taps_it_is_the_mean_of_the_neighbours():
    block = _built("lightweight", dim=4, causal=True, kernel=3, heads=4)
    torch.nn.init.constant_(block.taps, 5.0)
    x = torch.randn(1, 6, 4, dtype=torch.float64)
    gated = torch.nn.functional.glu(block.input(x), dim=2)
    mean = torch.stack([gated[:, max(0, i - 2) : i + 1].sum(1) / 3 for i in range(6)], dim=1)
    torch.testing.assert_close(block(x, Context()), block.output(mean))


@pytest.mark.parametrize("kind", KINDS)
def test_drop_connect_falls_on_whole_taps_and_keeps_the_mean(kind):
    torch.default_generator.manual_seed(0)
    block = _built(kind, dim=4, causal=True, kernel=5, heads=2, dropout=0.4)
    x = torch.randn(1, 9, 4, dtype=torch.float64)
    quiet = block(x, Context())
    block.train()
    drawn = torch.stack([block(x, Context()) for _ in range(1000)])
    assert drawn.std(0).max() > 0
    # Four standard errors of the mean of 1000 draws.
    assert ((drawn.mean(0) - quiet).abs() <= 4 * drawn.std(0) / 1000**0.5 + 1e-12).all()


@pytest.mark.parametrize("kind", KINDS)
def test_memory_grows_as_the_length(kind):
    block = _built(kind, dim=16, causal=True, kernel=15)

    def kept(length):
        x = torch.randn(1, length, 16, dtype=torch.float64, requires_grad=True)
        return kept_bytes(lambda: block(x, Context()), block.parameters())

    assert kept(2048) <= 4.1 * kept(512)


@pytest.mark.parametrize("kind", KINDS)
def test_refuses_what_it_cannot_be(kind):
    config = KINDS[kind][1]
    with pytest.raises(ValueError, match="kernel must be at least 1, but got 0"):
        config(dim=4, kernel=0)
    with pytest.raises(ValueError, match="dim must be a multiple of heads, but got dim=6, heads=4"):
        config(dim=6)
    with pytest.raises(ValueError, match="dropout must lie in"):
        config(dim=4, dropout=1.0)
