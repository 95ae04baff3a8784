"""Relative positions against their definition written out pair by pair, and their limit without vectors."""

import pytest
import torch
from torch.nn import functional as F

from searchspace.contract import Context
from searchspace.primitives.attention.shaw_attention import ShawAttention, ShawAttentionConfig


def _heads(block, x):
    B, T = x.shape[:2]
    projected = F.linear(x, block.query_key_value.weight, block.query_key_value.bias)
    return projected.view(B, T, 3, block.config.heads, -1).unbind(2)


def _plain(block, x, padding=None):
    config, (B, T, C) = block.config, x.shape
    (q, k, v), D, clip = _heads(block, x), C // config.heads, config.clip
    out = []
    for b in range(B):
        for i in range(T):
            may = [j for j in range(i + 1 if config.causal else T) if padding is None or padding[b, j]]
            rows = [max(-clip, min(clip, j - i)) + clip for j in may]
            for h in range(config.heads):
                scores = (k[b, may, h] + block.tables[0, rows]) @ q[b, i, h] / D**0.5
                values = v[b, may, h] + block.tables[1, rows] if config.values else v[b, may, h]
                out.append(torch.softmax(scores, 0) @ values)
    return F.linear(torch.stack(out).view(x.shape), block.output.weight, block.output.bias)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("options", [{"clip": 3}, {"clip": 40, "bias": True}, {"clip": 1, "values": False}], ids=str)
def test_equals_its_definition(agrees, options, causal):
    block = ShawAttention(ShawAttentionConfig(dim=8, causal=causal, heads=2, **options)).double()
    for length in (1, 17):
        x = torch.randn(2, length, 8, dtype=torch.float64)
        agrees(block, lambda x: _plain(block, x), x)
    padding = torch.rand(2, 17) < 0.7
    padding[0, :3] = False
    agrees(block, lambda x: _plain(block, x, padding), x, Context(padding=padding))


@pytest.mark.parametrize("causal", [True, False])
def test_tables_of_zeros_leave_full_attention(causal):
    block = ShawAttention(ShawAttentionConfig(dim=8, causal=causal, heads=2)).double()
    x = torch.randn(2, 40, 8, dtype=torch.float64)
    with torch.no_grad():
        block.tables.zero_()
    q, k, v = (part.transpose(1, 2) for part in _heads(block, x))
    full = F.scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(1, 2).flatten(2)
    torch.testing.assert_close(block(x, Context()), F.linear(full, block.output.weight), atol=1e-12, rtol=1e-12)


def test_only_differences_of_places_count():
    """A piece gives the same result at every position if all distances that it reads are within the clip."""
    block = ShawAttention(ShawAttentionConfig(dim=8, causal=True, heads=2, clip=4)).double()
    x = torch.randn(1, 6, 8, dtype=torch.float64)
    padding = torch.tensor([[False] * 5 + [True] * 6])
    later = block(torch.cat([torch.randn(1, 5, 8, dtype=torch.float64), x], dim=1), Context(padding=padding))
    torch.testing.assert_close(later[:, 5:], block(x, Context()), atol=1e-12, rtol=1e-12)


def test_causal_never_trains_the_vectors_of_the_future():
    block = ShawAttention(ShawAttentionConfig(dim=8, causal=True, heads=2, clip=4))
    block(torch.randn(1, 12, 8), Context()).sum().backward()
    assert block.tables.grad[:, :5].any(dim=2).all()
    assert not block.tables.grad[:, 5:].any()
