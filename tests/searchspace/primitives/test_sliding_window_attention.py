"""Sliding-window attention against full attention under the mask of its window."""

import pytest
import torch
from torch.nn import functional as F

from searchspace.contract import Context, Streams
from searchspace.cost import Shape
from searchspace.primitives.attention.sliding_window_attention import (
    SlidingWindowAttention,
    SlidingWindowAttentionConfig,
)
from searchspace.primitives.position.alibi import Alibi, AlibiConfig, slopes


def _plain(block, x, padding=None, alibi=False):
    """The whole matrix of scores, with everything outside the window set to minus infinity."""
    config, (B, T, C) = block.config, x.shape
    D, share = C // config.heads, config.heads // config.groups
    q = F.linear(x, block.query.weight, block.query.bias).view(B, T, config.heads, D)
    k, v = F.linear(x, block.key_value.weight, block.key_value.bias).view(B, T, 2, config.groups, D).unbind(2)
    k, v = k.repeat_interleave(share, 2), v.repeat_interleave(share, 2)
    scores = torch.einsum("bihd,bjhd->bhij", q, k) / D**0.5
    i, j = torch.arange(T)[:, None], torch.arange(T)[None, :]
    if alibi:
        scores = scores - torch.tensor(slopes(config.heads))[:, None, None] * (i - j).abs()
    inside = (j <= i) & (j > i - config.window) if config.causal else (i - j).abs() <= config.window // 2
    inside = inside.expand(B, 1, T, T) if padding is None else inside & padding[:, None, None, :]
    weights = torch.where(inside, scores.exp(), 0.0)
    weights = weights / weights.sum(3, keepdim=True).clamp(min=1e-300)
    return F.linear(torch.einsum("bhij,bjhd->bihd", weights, v).flatten(2), block.output.weight, block.output.bias)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("window", [1, 2, 3, 8, 33, 500])
@pytest.mark.parametrize("length", [1, 5, 50])
def test_equals_attention_under_a_band(agrees, length, window, causal):
    config = SlidingWindowAttentionConfig(dim=8, causal=causal, heads=2, window=window, bias=True)
    block = SlidingWindowAttention(config).double()
    x = torch.randn(2, length, 8, dtype=torch.float64)
    agrees(block, lambda x: _plain(block, x), x)
    padding = torch.rand(2, length) < 0.5
    agrees(block, lambda x: _plain(block, x, padding), x, Context(padding=padding))


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("window", [3, 20, 100])
def test_alibi_and_shared_keys_work_in_a_window(agrees, window, causal):
    config = SlidingWindowAttentionConfig(dim=12, causal=causal, heads=6, key_value_heads=2, window=window)
    block = SlidingWindowAttention(config).double()
    x = torch.randn(2, 50, 12, dtype=torch.float64)
    agrees(block, lambda x: _plain(block, x, alibi=True), x, Context(position=Alibi(AlibiConfig(dim=12))))


def test_work_and_state_grow_with_the_window_and_not_with_the_square_of_the_length():
    config = SlidingWindowAttentionConfig(dim=16, causal=True, window=32)
    costs = [SlidingWindowAttention.cost(config, Shape(length=length)) for length in (1024, 2048)]
    assert costs[1].flops == 2 * costs[0].flops
    assert costs[1].activation_bytes == 2 * costs[0].activation_bytes
    assert costs[1].state_bytes == costs[0].state_bytes == 2 * 31 * 16 * 4


def test_forgets_what_has_left_the_window():
    config = SlidingWindowAttentionConfig(dim=8, causal=True, heads=2, window=4)
    block, streams, x = SlidingWindowAttention(config), Streams(), torch.randn(1, 30, 8)
    for piece in x.split([7, 1, 22], dim=1):
        streams.rewind()
        block(piece, Context(streams=streams))
        streams.length += piece.shape[1]
    assert {name: state.shape for name, state in streams.slots[0].items()} == dict.fromkeys("kv", (1, 2, 3, 4))


def test_refuses_an_empty_window():
    with pytest.raises(ValueError, match="window must be at least 1, but got 0"):
        SlidingWindowAttentionConfig(dim=8, window=0)
