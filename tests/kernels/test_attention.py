"""Attention against its definition: outputs and gradients, at odd sizes, with masks and biases."""

import pytest
import torch

from kernels.attention import attention, attention_reference


def _heads(*shape, dtype=torch.float64):
    return torch.randn(shape, dtype=dtype, requires_grad=True)


def _agree(found, expected, inputs):
    torch.testing.assert_close(found, expected, atol=1e-10, rtol=1e-10)
    weights = torch.randn_like(found)
    gradients = [torch.autograd.grad((out * weights).sum(), inputs) for out in (found, expected)]
    torch.testing.assert_close(gradients[0], gradients[1], atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("heads", "groups", "queries", "length"), [(1, 1, 1, 1), (4, 2, 7, 7), (3, 1, 5, 33), (2, 2, 1, 9)]
)
def test_equals_its_definition(heads, groups, queries, length, causal, biased, masked):
    torch.manual_seed(0)
    q, k, v = _heads(2, heads, queries, 6), _heads(2, groups, length, 6), _heads(2, groups, length, 6)
    options = {
        "causal": causal,
        "bias": torch.randn(heads, queries, length) if biased else None,
        "keys": torch.rand(2, length) < 0.5 if masked else None,
        "scale": 0.7 if biased else None,
    }
    _agree(attention(q, k, v, **options), attention_reference(q, k, v, **options), (q, k, v))


def test_a_query_without_keys_reads_zeros_and_passes_no_gradient():
    q, k, v = _heads(2, 2, 3, 4), _heads(2, 2, 5, 4), _heads(2, 2, 5, 4)
    keys = torch.zeros(2, 5, dtype=torch.bool)
    keys[0] = True
    out = attention(q, k, v, keys=keys)
    assert not out[1].any()
    for gradient in torch.autograd.grad(out.square().sum(), (q, k, v)):
        assert gradient.isfinite().all()
        assert gradient[0].any()
        assert not gradient[1].any()


def test_the_last_query_sees_the_last_key():
    q, k, v = _heads(1, 1, 6, 4), _heads(1, 1, 6, 4), _heads(1, 1, 6, 4)
    whole = attention(q, k, v, causal=True)
    torch.testing.assert_close(attention(q[:, :, 4:], k, v, causal=True), whole[:, :, 4:])
    with pytest.raises(ValueError, match="a key for every query, but got 6 queries and 5 keys"):
        attention(q, k[:, :, 1:], v[:, :, 1:], causal=True)
