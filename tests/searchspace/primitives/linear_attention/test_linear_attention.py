"""Linear attention against its sums, written out pair by pair."""

import pytest
import torch
from torch.nn import functional as F

from searchspace.contract import Context
from searchspace.cost import Shape
from searchspace.primitives.linear_attention.linear_attention import LinearAttention, LinearAttentionConfig
from searchspace.testing import kept_bytes


def _plain(block, x, padding=None, memory=None):
    """out_i = sum_j (phi(q_i) . phi(k_j)) v_j / (sum_j phi(q_i) . phi(k_j) + 1e-6), no sum shared between positions."""
    config, (B, T, C) = block.config, x.shape

    def projected(y):
        whole = F.linear(y, block.query_key_value.weight, block.query_key_value.bias)
        return whole.view(B, y.shape[1], 3, config.heads, C // config.heads).unbind(2)

    q = projected(x)[0]
    _, k, v = projected(x if memory is None else memory)

    def phi(z):
        positive = torch.where(z > 0, z, 0.0)
        return positive + torch.where(z > 0, 1.0, z.exp()) if config.feature_map == "elu" else positive

    weights = torch.einsum("bihd,bjhd->bhij", phi(q), phi(k))
    if config.causal and memory is None:
        weights = weights * torch.ones(T, T, dtype=x.dtype).tril()
    if padding is not None:
        weights = weights * padding[:, None, None, :]
    out = torch.einsum("bhij,bjhd->bihd", weights / (weights.sum(3, keepdim=True) + 1e-6), v)
    return F.linear(out.flatten(2), block.output.weight, block.output.bias)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("feature_map", ["elu", "relu"])
@pytest.mark.parametrize("length", [1, 9, 64, 150])
def test_equals_its_sums(agrees, length, feature_map, causal):
    config = LinearAttentionConfig(dim=8, causal=causal, heads=2, feature_map=feature_map, bias=True)
    block = LinearAttention(config).double()
    with torch.no_grad():  # away from zero, where 1 / (z + 1e-6) of relu would magnify rounding beyond any tolerance
        block.query_key_value.bias.add_(0.5)
    x = torch.randn(2, length, 8, dtype=torch.float64)
    agrees(block, lambda x: _plain(block, x), x)
    padding = torch.rand(2, length) < 0.7
    agrees(block, lambda x: _plain(block, x, padding), x, Context(padding=padding))


@pytest.mark.parametrize("feature_map", ["elu", "relu"])
def test_over_a_memory_equals_its_sums(agrees, feature_map):
    """Katharopoulos et al. 2020, eq. 5, with the keys and values of another sequence, as in idiap/fast-transformers."""
    options = {"heads": 2, "feature_map": feature_map, "bias": True}
    block = LinearAttention(LinearAttentionConfig(dim=8, causal=True, memory=True, over="memory", **options)).double()
    with torch.no_grad():
        block.query_key_value.bias.add_(0.5)
    x, memory = torch.randn(2, 9, 8, dtype=torch.float64), torch.randn(2, 7, 8, dtype=torch.float64)
    real = torch.rand(2, 7) < 0.7
    agrees(block, lambda x: _plain(block, x, None, memory), x, Context(memory=memory))
    agrees(block, lambda x: _plain(block, x, real, memory), x, Context(memory=memory, memory_padding=real))


def test_training_keeps_no_prefix_for_every_position():
    block = LinearAttention(LinearAttentionConfig(dim=64, causal=True, heads=1))
    kept = {}
    for length in (512, 1024):
        x = torch.randn(1, length, 64, requires_grad=True)
        kept[length] = kept_bytes(lambda: block(x, Context()), block.parameters())  # noqa: B023
    every_prefix = 1024 * 64 * 65 * 4
    assert kept[1024] < 2.1 * kept[512]
    assert kept[1024] < every_prefix / 5


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("feature_map", ["elu", "relu"])
def test_declares_what_one_sequence_alone_keeps(feature_map, causal):
    config = LinearAttentionConfig(dim=16, causal=causal, feature_map=feature_map)
    block, x = LinearAttention(config), torch.randn(1, 131, 16, requires_grad=True)
    kept = kept_bytes(lambda: block(x, Context()), block.parameters())
    assert LinearAttention.cost(config, Shape(batch=1, length=131)).activation_bytes == kept
