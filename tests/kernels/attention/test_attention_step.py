"""One query over keys in several parts equals the definition over one tensor of all keys."""

import pytest
import torch

from kernels.attention.attention import attention_reference
from kernels.attention.decode_attention import attention_step
from tests.kernels.near import agree


def _heads(*shape, dtype=torch.float64):
    return torch.randn(shape, dtype=dtype, requires_grad=True)


def _whole(parts):
    return (torch.cat(tensors, dim=2) for tensors in zip(*parts, strict=True))


@pytest.mark.parametrize("scale", [None, 0.7])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("lengths", [(1,), (9, 2), (4, 1, 7)], ids=str)
@pytest.mark.parametrize(("heads", "groups"), [(1, 1), (4, 2), (3, 1), (3, 3)])
def test_equals_attention_over_all_parts(heads, groups, lengths, biased, scale):
    torch.default_generator.manual_seed(0)
    q = _heads(2, heads, 1, 6)
    parts = [(_heads(2, groups, length, 6), _heads(2, groups, length, 6)) for length in lengths]
    bias = torch.randn(heads, 1, sum(lengths), dtype=torch.float64) if biased else None
    found = attention_step(q, parts, bias=bias, scale=scale)
    expected = attention_reference(q, *_whole(parts), bias=bias, scale=scale)
    agree(found, expected, [q, *(tensor for part in parts for tensor in part)])


def test_low_precision_is_near_the_definition():
    torch.default_generator.manual_seed(0)
    q = torch.randn(2, 4, 1, 8, dtype=torch.bfloat16)
    parts = [tuple(torch.randn(2, 2, length, 8, dtype=torch.bfloat16) for _ in range(2)) for length in (50, 3)]
    found, expected = attention_step(q, parts), attention_reference(q, *_whole(parts))
    assert found.dtype == torch.bfloat16
    # 8 bits of mantissa; queries, scores, weights and results are rounded.
    assert (found - expected).abs().max() <= 4 * 2**-8 * expected.abs().max()


def test_drops_the_given_share_of_weights():
    torch.default_generator.manual_seed(0)
    parts = [(torch.zeros(1, 1, length, 1), torch.ones(1, 1, length, 1)) for length in (3000, 1000)]
    out = attention_step(torch.zeros(1, 1, 1, 1), parts, dropout=0.25)
    torch.testing.assert_close(out.item(), 1.0, atol=0.05, rtol=0)
    assert out.item() != 1.0


def test_refuses_more_than_one_query():
    q, part = torch.zeros(1, 1, 2, 4), (torch.zeros(1, 1, 3, 4), torch.zeros(1, 1, 3, 4))
    with pytest.raises(ValueError, match="A step takes one query, but got 2"):
        attention_step(q, [part])
