"""Linformer attention against its formula, head by head, and its limit: slots for every position are full attention."""

import pytest
import torch
from torch.nn import functional as F

from searchspace.contract import Context, Streams
from searchspace.errors import SpaceError
from searchspace.model.build import build, cost
from searchspace.primitives.linear_attention.linformer_attention import LinformerAttention, LinformerAttentionConfig
from searchspace.space.space import Space


def _plain(block, x, padding=None, memory=None):
    """softmax(q_i (E K)^T / sqrt(D)) (F V), every slot a sum over the real positions alone."""
    config, (B, T, C) = block.config, x.shape
    H, G, D = config.heads, config.groups, C // config.heads
    y = x if memory is None else memory
    S, (W, b) = y.shape[1], (block.query_key_value.weight, block.query_key_value.bias)
    q = F.linear(x, W[:C], b[:C]).view(B, T, H, D)
    k = F.linear(y, W[C : C + G * D], b[C : C + G * D]).view(B, S, G, D)
    v = k if config.one_map else F.linear(y, W[C + G * D :], b[C + G * D :]).view(B, S, G, D)
    real = torch.ones(B, S, dtype=torch.bool) if padding is None else padding
    out = []
    for n in range(B):
        for h in range(H):
            g = h * G // H
            which = {"none": (g, G + g), "headwise": (0, 1)}.get(config.sharing, (0, 0))
            E, M = (block.mixing[index] for index in which)
            used = [j for j in range(S) if real[n, j]]
            keys = sum((E[:, j, None] * k[n, j, g] for j in used), torch.zeros(config.slots, D, dtype=x.dtype))
            values = sum((M[:, j, None] * v[n, j, g] for j in used), torch.zeros(config.slots, D, dtype=x.dtype))
            scores = (q[n, :, h] @ keys.T / D**0.5).exp()
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


@pytest.mark.parametrize("sharing", ["none", "headwise", "key_value"])
@pytest.mark.parametrize("options", [{"key_value_heads": 1}, {"key_value_heads": 2, "one_map": True}], ids=str)
def test_shared_heads_and_one_map_equal_their_formula(agrees, options, sharing):
    """As in lucidrains/linformer: `one_kv_head` is key_value_heads: 1; `share_kv` is one_map with key_value."""
    config = LinformerAttentionConfig(dim=8, heads=4, slots=3, length=9, sharing=sharing, bias=True, **options)
    block = LinformerAttention(config).double()
    x, padding = torch.randn(2, 7, 8, dtype=torch.float64), torch.rand(2, 7) < 0.6
    agrees(block, lambda x: _plain(block, x), x)
    agrees(block, lambda x: _plain(block, x, padding), x, Context(padding=padding))


@pytest.mark.parametrize("sharing", ["none", "headwise"])
def test_over_a_memory_equals_its_formula(agrees, sharing):
    options = {"heads": 2, "slots": 3, "length": 9, "sharing": sharing, "bias": True}
    config = LinformerAttentionConfig(dim=8, causal=True, memory=True, over="memory", **options)
    block = LinformerAttention(config).double()
    x, memory = torch.randn(2, 4, 8, dtype=torch.float64), torch.randn(2, 7, 8, dtype=torch.float64)
    real = torch.rand(2, 7) < 0.6
    agrees(block, lambda x: _plain(block, x, None, memory), x, Context(memory=memory))
    agrees(block, lambda x: _plain(block, x, real, memory), x, Context(memory=memory, memory_padding=real))


TRANSLATION = """
kind: encoder_decoder
width: 8
vocabulary: 7
encoder: {{linformer_attention: {{heads: 2, slots: 2, length: 6}}}}
decoder: [{{attention: {{heads: 2}}}}, {{linformer_attention: {{heads: 2, slots: 2, length: 6, over: {over}}}}}]
"""


def test_a_decoder_reads_a_memory_with_it_in_pieces_and_cannot_read_itself():
    model = build(TRANSLATION.format(over="memory")).double().eval()
    source, target = torch.randint(7, (2, 6)), torch.randint(7, (2, 9))  # a target may be longer than `length`
    whole = model(source, target)
    context = Context(streams=Streams(), memory=model.encode(source))
    pieces = [model.decode(piece, context) for piece in target.split([1, 5, 3], dim=1)]
    torch.testing.assert_close(torch.cat(pieces, dim=1), whole, atol=1e-12, rtol=1e-12)
    with pytest.raises(SpaceError, match="linformer_attention looks ahead, so it cannot be part of a decoder"):
        build(TRANSLATION.format(over="self"))
    with pytest.raises(SpaceError, match="looks ahead"):
        Space.parse(TRANSLATION.format(over="!choice [self, memory]"))  # `self` is never valid here


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


def test_says_what_does_not_fit():
    block = LinformerAttention(LinformerAttentionConfig(dim=8, slots=2, length=4))
    with pytest.raises(ValueError, match="built for at most 4 positions, but got 5"):
        block(torch.randn(1, 5, 8), Context())
