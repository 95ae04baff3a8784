"""Attention against its formula, one query and one key at a time."""

import math

import pytest
import torch
from torch.nn import functional as F

from searchspace.contract import Context, Streams
from searchspace.cost import Shape
from searchspace.primitives.attention.attention import Attention, AttentionConfig
from searchspace.primitives.attention.heads import Source, with_source
from searchspace.primitives.position.alibi import Alibi, AlibiConfig, slopes
from searchspace.primitives.position.rotary import Rotary, RotaryConfig
from searchspace.testing import count_flops


def _plain(block, x, y, allowed, bias=None, turn=lambda head, place: head):
    """softmax(Q K^T / sqrt(D)) V by loops; allowed(b, i, j) and bias(h, i, j) speak of single pairs."""
    config = block.config
    D = config.dim // config.heads
    share = config.heads // config.groups
    keys_values = F.linear(y, block.key_value.weight, block.key_value.bias)
    queries = F.linear(x, block.query.weight, block.query.bias)
    batch = []
    for b in range(x.shape[0]):
        rows = []
        for i in range(x.shape[1]):
            heads = []
            for h in range(config.heads):
                g = h // share
                q = turn(queries[b, i, h * D : (h + 1) * D], i)
                near = [j for j in range(y.shape[1]) if allowed(b, i, j)]
                if not near:
                    heads.append(q * 0)
                    continue
                scores, values = [], []
                for j in near:
                    k = turn(keys_values[b, j, g * D : (g + 1) * D], j)
                    scores.append((q * k).sum() / math.sqrt(D) + (bias(h, i, j) if bias else 0.0))
                    values.append(keys_values[b, j, (config.groups + g) * D : (config.groups + g + 1) * D])
                weights = torch.stack(scores).exp()
                heads.append((weights[:, None] * torch.stack(values)).sum(0) / weights.sum())
            rows.append(torch.cat(heads))
        batch.append(torch.stack(rows))
    return F.linear(torch.stack(batch), block.output.weight, block.output.bias)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("key_value_heads", [None, 2, 1])
def test_equals_its_formula(agrees, causal, key_value_heads):
    config = AttentionConfig(dim=8, causal=causal, heads=4, key_value_heads=key_value_heads, bias=True)
    block = Attention(config).double()
    x = torch.randn(2, 7, 8, dtype=torch.float64)
    agrees(block, lambda x: _plain(block, x, x, lambda b, i, j: j <= i or not causal), x)


@pytest.mark.parametrize("causal", [True, False])
def test_padded_keys_are_not_read_and_a_query_without_keys_reads_zeros(agrees, causal):
    block = Attention(AttentionConfig(dim=8, causal=causal, heads=2, bias=True)).double()
    x = torch.randn(3, 6, 8, dtype=torch.float64)
    padding = torch.ones(3, 6, dtype=torch.bool)
    padding[0, 4:] = padding[1, :2] = padding[2, :] = False

    def allowed(b, i, j):
        return bool(padding[b, j]) and (j <= i or not causal)

    agrees(block, lambda x: _plain(block, x, x, allowed), x, Context(padding=padding))
    empty = block(x, Context(padding=padding))[2]
    torch.testing.assert_close(empty, block.output.bias.expand_as(empty))


def test_reads_an_encoders_output_where_it_is_real(agrees):
    block = Attention(AttentionConfig(dim=8, causal=True, memory=True, over="memory", heads=2)).double()
    x, memory = torch.randn(2, 4, 8, dtype=torch.float64), torch.randn(2, 6, 8, dtype=torch.float64)
    real = torch.tensor([[True] * 6, [True, True, False, True, False, False]])
    context = Context(memory=memory, memory_padding=real)
    agrees(block, lambda x: _plain(block, x, memory, lambda b, i, j: bool(real[b, j])), x, context)


def test_streaming_keeps_the_memory_with_its_padding_and_beams_carry_both():
    torch.default_generator.manual_seed(0)
    block = Attention(AttentionConfig(dim=8, causal=True, memory=True, over="memory", heads=2)).double()
    x, memory = torch.randn(2, 4, 8, dtype=torch.float64), torch.randn(2, 6, 8, dtype=torch.float64)
    real = torch.tensor([[True] * 6, [True, True, False, True, False, False]])
    whole = block(x, Context(memory=memory, memory_padding=real))
    streams, index = Streams(), torch.tensor([1, 0])
    torch.testing.assert_close(
        block(x[:, :1], Context(memory=memory, memory_padding=real, streams=streams)), whole[:, :1]
    )
    streams.reorder(index)
    streams.rewind()
    torch.testing.assert_close(block(x[index, 1:], Context(streams=streams)), whole[index, 1:])


def test_reads_its_keys_from_a_source_where_it_is_real_and_only_once(agrees):
    block = Attention(AttentionConfig(dim=8, heads=2, bias=True)).double()
    x, longer = torch.randn(2, 3, 8, dtype=torch.float64), torch.randn(2, 6, 8, dtype=torch.float64)
    real = torch.tensor([[True] * 6, [True, True, False, True, False, False]])
    pooled, places = torch.tensor([0, 2, 4]), torch.arange(6)
    context = Context(positions=pooled, position=Alibi(AlibiConfig(dim=8)))
    context = with_source(context, Source(longer, places, real))

    def bias(h, i, j):
        return -slopes(2)[h] * abs(2 * i - j)

    agrees(block, lambda x: _plain(block, x, longer, lambda b, i, j: bool(real[b, j]), bias), x, context)
    assert not context.lanes
    itself = _plain(block, x, x, lambda b, i, j: True, lambda h, i, j: -slopes(2)[h] * abs(2 * i - 2 * j))
    torch.testing.assert_close(block(x, context), itself)


def test_what_a_source_costs_is_what_is_counted():
    block = Attention(AttentionConfig(dim=8, heads=2, key_value_heads=1, bias=True))
    x, longer = torch.randn(2, 3, 8, requires_grad=True), torch.randn(2, 6, 8, requires_grad=True)
    context = Context(positions=torch.tensor([0, 2, 4]))
    cost = Attention.cost(block.config, Shape(batch=2, length=3, source=6))
    counted = count_flops(lambda: block(x, with_source(context, Source(longer, torch.arange(6)))))
    assert (cost.flops, cost.training_flops) == counted


@pytest.mark.parametrize("layout", ["halves", "interleaved"])
def test_rotary_positions_turn_queries_and_keys(agrees, layout):
    block = Attention(AttentionConfig(dim=12, causal=True, heads=2)).double()
    x = torch.randn(1, 5, 12, dtype=torch.float64)

    def turn(head, place):
        pairs = head.view(2, 3).T if layout == "halves" else head.view(3, 2)
        turned = []
        for m, (a, b) in enumerate(pairs):
            angle = place * 10000 ** (-2 * m / 6)
            turned.append((a * math.cos(angle) - b * math.sin(angle), a * math.sin(angle) + b * math.cos(angle)))
        if layout == "halves":
            return torch.stack([a for a, _ in turned] + [b for _, b in turned])
        return torch.stack([value for pair in turned for value in pair])

    context = Context(position=Rotary(RotaryConfig(dim=12, layout=layout)))
    agrees(block, lambda x: _plain(block, x, x, lambda b, i, j: j <= i, turn=turn), x, context)


@pytest.mark.parametrize("causal", [True, False])
def test_alibi_lowers_scores_with_distance_after_the_scaling(agrees, causal):
    block = Attention(AttentionConfig(dim=12, causal=causal, heads=3)).double()
    x = torch.randn(2, 5, 12, dtype=torch.float64)
    padding = torch.tensor([[True] * 5, [True, True, True, False, False]])

    def bias(h, i, j):
        return -slopes(3)[h] * abs(i - j)

    def allowed(b, i, j):
        return bool(padding[b, j]) and (j <= i or not causal)

    context = Context(position=Alibi(AlibiConfig(dim=12)), padding=padding)
    agrees(block, lambda x: _plain(block, x, x, allowed, bias), x, context)


def test_says_what_does_not_fit():
    block = Attention(AttentionConfig(dim=8, memory=True, over="memory"))
    with pytest.raises(ValueError, match="the context has no lane 'memory'"):
        block(torch.randn(1, 2, 8), Context())
