"""Funnel attention against its formula, one pair at a time, and its limit: without relations it is attention."""

import math

import pytest
import torch
from torch.nn import functional as F

from searchspace.contract import Context
from searchspace.cost import Shape
from searchspace.primitives.attention.attention import Attention, AttentionConfig
from searchspace.primitives.attention.funnel_attention import FunnelAttention, FunnelAttentionConfig
from searchspace.primitives.attention.heads import Source, with_source
from searchspace.testing import count_flops


def _block(**fields):
    torch.default_generator.manual_seed(0)
    return FunnelAttention(FunnelAttentionConfig(dim=8, heads=2, **fields)).double()


def _wave(distance, dim):
    angles = [distance * 10000 ** (-m / (dim / 2)) for m in range(dim // 2)]
    return torch.tensor([math.sin(a) for a in angles] + [math.cos(a) for a in angles], dtype=torch.float64)


def _plain(block, x, source, queries, keys, real=None, segments=(None, None)):
    """[(q_i + u) . k_j + (q_i + v) . (R_{p_i - p_j} W_r) + (q_i + w) . e_{same(i, j)}] / sqrt(D), by loops."""
    config, C = block.config, block.config.dim
    D = C // config.heads
    q, kv = F.linear(x, block.query.weight), F.linear(source, block.key_value.weight, block.key_value.bias)
    batch = []
    for b in range(len(x)):
        rows = []
        for i in range(x.shape[1]):
            heads = []
            for h in range(config.heads):
                part = slice(h * D, (h + 1) * D)
                near = [j for j in range(source.shape[1]) if real is None or real[b, j]]
                scores = []
                for j in near:
                    score = (q[b, i, part] + block.content_bias[h, 0]) @ kv[b, j, part]
                    if not (config.separate_first and 0 in (i, j)):
                        relative = block.distance.weight[part] @ _wave(queries[i] - keys[j], C)
                        score = score + (q[b, i, part] + block.distance_bias[h, 0]) @ relative
                        if config.segments:
                            same = 1
                            if segments[0] is not None:
                                one, other = segments[0][b][i], segments[1][b][j]
                                same = int(one == other or one < 0 or other < 0)
                            score = score + (q[b, i, part] + block.segment_bias[h, 0]) @ block.segment[same, h]
                    scores.append(score / math.sqrt(D))
                if not near:
                    heads.append(torch.zeros(D, dtype=x.dtype))
                    continue
                weights = torch.stack(scores).exp()
                values = kv[b, near, C + h * D : C + (h + 1) * D]
                heads.append((weights[:, None] * values).sum(0) / weights.sum())
            rows.append(torch.cat(heads))
        batch.append(torch.stack(rows))
    return F.linear(torch.stack(batch), block.output.weight, block.output.bias)


@pytest.mark.parametrize("separate", [True, False])
@pytest.mark.parametrize("segments", [True, False])
def test_equals_its_formula(agrees, separate, segments):
    block, x = _block(separate_first=separate, segments=segments), torch.randn(3, 5, 8, dtype=torch.float64)
    real = torch.tensor([[True] * 5, [True, True, False, True, False], [False] * 5])
    parts = torch.tensor([[0, 0, 0, 1, 1], [2, 0, 1, 1, -1], [0] * 5])
    context = Context(padding=real, segments=parts)
    agrees(block, lambda x: _plain(block, x, x, range(5), range(5), real, (parts, parts)), x, context)


@pytest.mark.parametrize("separate", [True, False])
@pytest.mark.parametrize("pooled", [[-1, 1, 3], [0, 2, 4], [-1, 1, 3, 5]])
def test_pooled_queries_read_the_keys_of_what_they_were_pooled_from(agrees, pooled, separate):
    block = _block(separate_first=separate)
    x, longer = torch.randn(2, len(pooled), 8, dtype=torch.float64), torch.randn(2, 6, 8, dtype=torch.float64)
    real = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])
    parts, short = torch.tensor([[-1, 0, 0, 1, 1, 1]] * 2), torch.tensor([[-1, 0, 1, 1]] * 2)[:, : len(pooled)]
    source = Source(longer, torch.arange(6), real, parts)
    context = with_source(Context(positions=torch.tensor(pooled), segments=short), source)
    agrees(block, lambda x: _plain(block, x, longer, pooled, range(6), real, (short, parts)), x, context)
    assert "source.x" not in context.lanes, "it is read once"


def test_positions_may_start_anywhere_and_lie_further_apart():
    block, x = _block(), torch.randn(1, 4, 8, dtype=torch.float64)
    places = torch.tensor([-3, 1, 5, 9])
    expected = _plain(block, x, x, places.tolist(), places.tolist())
    torch.testing.assert_close(block(x, Context(positions=places)), expected, atol=1e-9, rtol=1e-9)


def test_without_biases_and_relations_it_is_attention():
    block, x = _block(segments=False, separate_first=False), torch.randn(2, 7, 8, dtype=torch.float64)
    plain = Attention(AttentionConfig(dim=8, heads=2, bias=True)).double()
    with torch.no_grad():
        for parameter in (block.content_bias, block.distance_bias, block.distance.weight, plain.query.bias):
            parameter.zero_()
        plain.query.weight.copy_(block.query.weight)
    for name in ("key_value", "output"):
        getattr(plain, name).load_state_dict(getattr(block, name).state_dict())
    torch.testing.assert_close(block(x, Context()), plain(x, Context()), atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize(("length", "longer"), [(3, 5), (3, 6), (1, 1), (2, 2)])
def test_what_a_source_costs_is_what_is_counted(length, longer):
    block = _block().float()
    x, y = torch.randn(2, length, 8, requires_grad=True), torch.randn(2, longer, 8, requires_grad=True)
    context = Context(positions=2 * torch.arange(length) - 1)
    cost = FunnelAttention.cost(block.config, Shape(batch=2, length=length, source=longer))
    counted = count_flops(lambda: block(x, with_source(context, Source(y, torch.arange(longer)))))
    assert (cost.flops, cost.training_flops) == counted


def test_refuses_positions_that_are_not_evenly_spaced():
    x = torch.randn(1, 3, 8, dtype=torch.float64)
    with pytest.raises(ValueError, match=r"evenly spaced positions\. .* but got \[0, 1, 3\]"):
        _block()(x, Context(positions=torch.tensor([0, 1, 3])))
    with pytest.raises(ValueError, match="twice as far apart"):
        _block()(x, with_source(Context(), Source(torch.randn(1, 6, 8, dtype=torch.float64), torch.arange(6))))
