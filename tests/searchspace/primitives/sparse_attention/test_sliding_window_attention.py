"""Sliding-window attention against full attention under the mask of its window."""

import pytest
import torch
from torch.nn import functional as F

from searchspace.contract import Context, Streams
from searchspace.cost import Shape
from searchspace.primitives.position.alibi import Alibi, AlibiConfig, slopes
from searchspace.primitives.sparse_attention.sliding_window_attention import (
    SlidingWindowAttention,
    SlidingWindowAttentionConfig,
)
from searchspace.testing import count_flops


def _inside(config, head, distance):
    """Whether a position `distance` before another one is in its window."""
    plain = config.dilated_heads is not None and head < config.heads - config.dilated_heads
    d = 1 if plain else config.dilation
    low, high = (0, config.window - 1) if config.causal else (-(config.window // 2), config.window // 2)
    return (distance % d == 0) & (distance >= low * d) & (distance <= high * d)


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
    inside = torch.stack([_inside(config, h, i - j) for h in range(config.heads)]).expand(B, -1, T, T)
    inside = inside if padding is None else inside & padding[:, None, None, :]
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


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("dilation", "heads"), [(2, None), (3, 2), (7, 4), (60, None)])
@pytest.mark.parametrize("length", [1, 5, 50])
def test_dilated_heads_read_every_third_position(agrees, length, dilation, heads, causal):
    config = SlidingWindowAttentionConfig(
        dim=12, causal=causal, heads=6, key_value_heads=3, window=4, dilation=dilation, dilated_heads=heads
    )
    block = SlidingWindowAttention(config).double()
    x = torch.randn(2, length, 12, dtype=torch.float64)
    agrees(block, lambda x: _plain(block, x), x)
    padding, position = torch.rand(2, length) < 0.5, Alibi(AlibiConfig(dim=12))
    agrees(block, lambda x: _plain(block, x, padding, alibi=True), x, Context(padding=padding, position=position))
    shape = Shape(batch=2, length=length)
    flops = count_flops(lambda: block(x, Context()))
    assert (SlidingWindowAttention.cost(config, shape).flops, flops[1]) == (flops[0], 3 * flops[0])


@pytest.mark.parametrize("heads", [None, 1])
def test_a_dilated_window_streams(heads):
    config = SlidingWindowAttentionConfig(dim=8, causal=True, window=3, dilation=4, dilated_heads=heads)
    block, x = SlidingWindowAttention(config).double(), torch.randn(1, 30, 8, dtype=torch.float64)
    streams, outs = Streams(), []
    for piece in x.split([1, 1, 6, 1, 14, 7], dim=1):
        streams.rewind()
        outs.append(block(piece, Context(streams=streams)))
        streams.length += piece.shape[1]
    torch.testing.assert_close(torch.cat(outs, dim=1), block(x, Context()), atol=1e-12, rtol=1e-12)
    assert streams.nbytes() == 2 * 8 * 8 * 8  # (3 - 1) * 4 positions of keys and values


def test_forgets_what_has_left_the_window():
    config = SlidingWindowAttentionConfig(dim=8, causal=True, heads=2, window=4)
    block, streams, x = SlidingWindowAttention(config), Streams(), torch.randn(1, 30, 8)
    for piece in x.split([7, 1, 22], dim=1):
        streams.rewind()
        block(piece, Context(streams=streams))
        streams.length += piece.shape[1]
    assert {name: state.shape for name, state in next(iter(streams.slots.values())).items()} == dict.fromkeys(
        "kv", (1, 2, 3, 4)
    )


@pytest.mark.parametrize("heads", [0, 1, 5])
def test_dilated_heads_are_whole_groups(heads):
    with pytest.raises(ValueError, match=f"a multiple of 2 between 1 and heads=4, but got {heads}"):
        SlidingWindowAttentionConfig(dim=8, heads=4, key_value_heads=2, dilated_heads=heads)
