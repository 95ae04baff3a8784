"""Additive attention against its formula, one query and one key at a time."""

import pytest
import torch

from searchspace.contract import Context
from searchspace.primitives.attention.additive_attention import AdditiveAttention, AdditiveAttentionConfig


def _built(**fields):
    return AdditiveAttention(AdditiveAttentionConfig(dim=8, **fields)).double()


def _plain(block, x, y, allowed):
    """e_ij = v . tanh(W x_i + U y_j), softmax over the allowed j, the sum of the values."""
    heads = block.config.heads
    A, D = block.config.scored // heads, 8 // heads
    q, k, values = block.query(x), block.key(y), y if block.value is None else block.value(y)
    batch = []
    for b in range(x.shape[0]):
        rows = []
        for i in range(x.shape[1]):
            near = [j for j in range(y.shape[1]) if allowed(b, i, j)]
            read = []
            for h in range(heads):
                a, d = slice(h * A, (h + 1) * A), slice(h * D, (h + 1) * D)
                scores = [(block.score[h] * torch.tanh(q[b, i, a] + k[b, j, a])).sum() for j in near]
                weights = torch.stack(scores).softmax(0) if near else []
                read.append(sum((w * values[b, j, d] for w, j in zip(weights, near, strict=True)), x.new_zeros(D)))
            rows.append(torch.cat(read))
        batch.append(torch.stack(rows))
    out = torch.stack(batch)
    return out if block.output is None else block.output(out)


@pytest.mark.parametrize(
    "fields",
    [{}, {"heads": 2, "alignment": 3}, {"values": "projected", "bias": True}, {"heads": 4, "values": "projected"}],
    ids=str,
)
@pytest.mark.parametrize("causal", [True, False])
def test_equals_its_formula_and_padded_keys_are_not_read(agrees, causal, fields):
    block = _built(causal=causal, **fields)
    x = torch.randn(3, 6, 8, dtype=torch.float64)
    agrees(block, lambda x: _plain(block, x, x, lambda b, i, j: j <= i or not causal), x.clone())
    padding = torch.ones(3, 6, dtype=torch.bool)
    padding[0, 4:] = padding[1, :2] = padding[2, :] = False

    def allowed(b, i, j):
        return bool(padding[b, j]) and (j <= i or not causal)

    agrees(block, lambda x: _plain(block, x, x, allowed), x, Context(padding=padding))


@pytest.mark.parametrize("values", ["states", "projected"])
def test_reads_an_encoders_output_where_it_is_real(agrees, values):
    block = _built(causal=True, memory=True, over="memory", heads=2, values=values)
    x, memory = torch.randn(2, 4, 8, dtype=torch.float64), torch.randn(2, 6, 8, dtype=torch.float64)
    real = torch.tensor([[True] * 6, [True, True, False, True, False, False]])
    context = Context(memory=memory, memory_padding=real)
    agrees(block, lambda x: _plain(block, x, memory, lambda b, i, j: bool(real[b, j])), x, context)


def test_the_contexts_of_the_paper_are_means_of_the_states_themselves():
    block = _built()
    with torch.no_grad():
        block.score.zero_()
    x = torch.randn(2, 5, 8, dtype=torch.float64)
    torch.testing.assert_close(block(x, Context()), x.mean(1, keepdim=True).expand_as(x))


def test_says_what_does_not_fit():
    with pytest.raises(ValueError, match="the context has no lane 'memory'"):
        _built(memory=True, over="memory")(torch.randn(1, 2, 8, dtype=torch.float64), Context())
