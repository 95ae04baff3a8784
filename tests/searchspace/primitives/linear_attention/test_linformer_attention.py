"""Linformer attention against its formula, head by head, and its limit: slots for every position are full attention."""

import pytest
import torch
from torch.nn import functional as F

from searchspace.contract import Context
from searchspace.cost import Shape
from searchspace.model.build import build, cost
from searchspace.primitives.linear_attention.linformer_attention import LinformerAttention, LinformerAttentionConfig


def _plain(block, x, padding=None):
    """softmax(q_i (E K)^T / sqrt(D)) (F V), every slot a sum over the real positions alone."""
    config, (B, T, C) = block.config, x.shape
    H, D = config.heads, C // config.heads
    projected = F.linear(x, block.query_key_value.weight, block.query_key_value.bias)
    q, k, v = projected.view(B, T, 3, H, D).unbind(2)
    real = torch.ones(B, T, dtype=torch.bool) if padding is None else padding
    out = []
    for b in range(B):
        for h in range(H):
            which = {"none": (h, H + h), "headwise": (0, 1)}.get(config.sharing, (0, 0))
            E, G = (block.mixing[n] for n in which)
            used = [j for j in range(T) if real[b, j]]
            keys = sum((E[:, j, None] * k[b, j, h] for j in used), torch.zeros(config.slots, D, dtype=x.dtype))
            values = sum((G[:, j, None] * v[b, j, h] for j in used), torch.zeros(config.slots, D, dtype=x.dtype))
            scores = (q[b, :, h] @ keys.T / D**0.5).exp()
            out.append(scores / scores.sum(1, keepdim=True) @ values)
    heads = torch.stack(out).view(B, H, T, D).transpose(1, 2)
    return F.linear(heads.flatten(2), block.output.weight, block.output.bias)


@pytest.mark.parametrize("sharing", ["none", "headwise", "key_value", "layerwise"])
@pytest.mark.parametrize("length", [1, 7, 30])
def test_equals_its_formula(agrees, length, sharing):
    config = LinformerAttentionConfig(dim=8, heads=2, slots=5, length=30, sharing=sharing, bias=True)
    block = LinformerAttention(config).double()
    x = torch.randn(2, length, 8, dtype=torch.float64)
    agrees(block, lambda x: _plain(block, x), x)
    padding = torch.rand(2, length) < 0.6
    agrees(block, lambda x: _plain(block, x, padding), x, Context(padding=padding))


def test_a_slot_for_every_position_is_full_attention():
    config = LinformerAttentionConfig(dim=8, heads=2, slots=12, length=12)
    block = LinformerAttention(config).double()
    with torch.no_grad():
        block.mixing.copy_(torch.eye(12).expand(2, 12, 12))
    x = torch.randn(2, 12, 8, dtype=torch.float64)
    q, k, v = F.linear(x, block.query_key_value.weight).view(2, 12, 3, 2, 4).permute(2, 0, 3, 1, 4)
    full = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
    torch.testing.assert_close(block(x, Context()), F.linear(full, block.output.weight), atol=1e-12, rtol=1e-12)


def test_layerwise_every_layer_of_a_model_reads_one_matrix_that_counts_once():
    def text(sharing):
        block = f"{{linformer_attention: {{heads: 2, slots: 3, length: 9, sharing: {sharing}}}}}"
        return f"kind: encoder\nwidth: 8\nfeatures: 4\nclasses: 2\nbody: {{repeat: {{times: 3, of: {block}}}}}\n"

    counts = {}
    for sharing in ("layerwise", "key_value"):
        model = build(text(sharing))
        matrices = {id(layer.mixing) for layer in model.modules() if isinstance(layer, LinformerAttention)}
        assert len(matrices) == {"layerwise": 1, "key_value": 3}[sharing]
        counts[sharing] = sum(parameter.numel() for parameter in model.parameters())
        assert cost(text(sharing)).parameters == counts[sharing]
    assert counts["key_value"] - counts["layerwise"] == 2 * 3 * 9


def test_work_grows_with_the_length_and_not_with_its_square():
    config = LinformerAttentionConfig(dim=16, length=4096)
    costs = [LinformerAttention.cost(config, Shape(length=length)) for length in (1024, 4096)]
    assert 3.9 * costs[0].flops < costs[1].flops <= 4 * costs[0].flops  # the slots are projected once
    assert costs[1].activation_bytes < 4 * costs[0].activation_bytes


def test_says_what_does_not_fit():
    with pytest.raises(ValueError, match="length must be at least slots, but got length=8, slots=9"):
        LinformerAttentionConfig(dim=8, slots=9, length=8)
    block = LinformerAttention(LinformerAttentionConfig(dim=8, slots=2, length=4))
    with pytest.raises(ValueError, match="built for at most 4 positions, but got 5"):
        block(torch.randn(1, 5, 8), Context())
