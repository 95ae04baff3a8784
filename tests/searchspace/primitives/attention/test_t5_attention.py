"""T5 attention against its scores written out pair by pair, and its buckets against their formula."""

import math

import pytest
import torch
from torch.nn import functional as F

from searchspace.contract import Context
from searchspace.model.build import build, cost
from searchspace.primitives.attention.t5_attention import T5Attention, T5AttentionConfig


def _bucket(distance, config):
    """The bucket of key - query, by the logarithm."""
    buckets, first = config.buckets, 0
    if not config.causal:
        buckets //= 2
        first = buckets if distance > 0 else 0
        distance = abs(distance)
    else:
        distance = max(-distance, 0)
    exact = buckets // 2
    if distance < exact:
        return first + distance
    # The smallest excess over a whole number is far above rounding at these sizes.
    share = math.log(distance / exact) / math.log(config.max_distance / exact)
    return first + min(buckets - 1, exact + math.floor(share * (buckets - exact) + 1e-12))


def _plain(block, x, padding=None):
    config, (B, T, C) = block.config, x.shape
    D = C // config.heads
    projected = F.linear(x, block.query_key_value.weight, block.query_key_value.bias)
    q, k, v = projected.view(B, T, 3, config.heads, D).unbind(2)
    out = []
    for b in range(B):
        for i in range(T):
            may = [j for j in range(i + 1 if config.causal else T) if padding is None or padding[b, j]]
            bias = torch.stack([block.table[_bucket(j - i, config)] for j in may]) if may else x.new_zeros(0, 1)
            for h in range(config.heads):
                scores = k[b, may, h] @ q[b, i, h] / (D**0.5 if config.scale else 1) + bias[:, h % bias.shape[1]]
                out.append(torch.softmax(scores, 0) @ v[b, may, h])
    return F.linear(torch.stack(out).view(x.shape), block.output.weight, block.output.bias)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("options", [{}, {"scale": True, "bias": True}, {"buckets": 6, "max_distance": 7}], ids=str)
def test_equals_its_definition(agrees, options, causal):
    block = T5Attention(T5AttentionConfig(dim=8, causal=causal, heads=2, **options)).double()
    with torch.no_grad():
        block.table.normal_()
    for length in (1, 25):
        x = torch.randn(2, length, 8, dtype=torch.float64)
        agrees(block, lambda x: _plain(block, x), x)
    padding = torch.rand(2, 25) < 0.7
    padding[0, :3] = False
    agrees(block, lambda x: _plain(block, x, padding), x, Context(padding=padding))


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("buckets", "max_distance"), [(32, 128), (64, 1000), (8, 20), (4, 3)])
def test_buckets_are_those_of_the_logarithm(buckets, max_distance, causal):
    config = T5AttentionConfig(dim=8, causal=causal, buckets=buckets, max_distance=max_distance)
    distances = list(range(-3 * max_distance, 3 * max_distance))
    found = T5Attention(config).buckets(torch.tensor(distances))
    assert found.tolist() == [_bucket(distance, config) for distance in distances]
    assert found.max() == buckets - 1


def test_published_buckets():
    """Of 32 both ways: 8 distances each, then up to 128; the key's side of the query decides the half."""
    block = T5Attention(T5AttentionConfig(dim=8))
    distances = torch.tensor([0, -1, -7, -8, -11, -12, -16, -64, -127, -5000, 1, 8, 5000])
    assert block.buckets(distances).tolist() == [0, 1, 7, 8, 8, 9, 10, 14, 15, 15, 17, 24, 31]


@pytest.mark.parametrize("causal", [True, False])
def test_a_table_of_zeros_is_attention_with_unscaled_scores(causal):
    block, x = T5Attention(T5AttentionConfig(dim=8, causal=causal, heads=2)).double(), torch.randn(2, 9, 8).double()
    with torch.no_grad():
        block.table.zero_()
    q, k, v = (y.view(2, 9, 2, 4).transpose(1, 2) for y in F.linear(x, block.query_key_value.weight).chunk(3, dim=2))
    full = F.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=1.0).transpose(1, 2).flatten(2)
    torch.testing.assert_close(block(x, Context()), F.linear(full, block.output.weight), atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("share", [True, False])
def test_layers_share_their_table_unless_told_otherwise(share):
    block = f"{{t5_attention: {{heads: 2, share: {str(share).lower()}}}}}"
    text = f"kind: decoder\nwidth: 8\nvocabulary: 5\nbody: {{repeat: {{times: 3, of: {block}}}}}\n"
    model = build(text)
    tables = {id(layer.table) for layer in model.modules() if isinstance(layer, T5Attention)}
    assert len(tables) == (1 if share else 3)
    assert cost(text).parameters == sum(parameter.numel() for parameter in model.parameters())


def test_scores_start_as_wide_as_those_of_scaled_attention():
    torch.default_generator.manual_seed(0)
    blocks = [T5Attention(T5AttentionConfig(dim=64, scale=scale)) for scale in (False, True)]
    parts = [block.query_key_value.weight.split([64, 128]) for block in blocks]
    (q, kv), (scaled, others) = ([part.std().item() for part in each] for each in parts)
    assert (q, kv) == (pytest.approx(scaled / 4, rel=0.05), pytest.approx(others, rel=0.05))
