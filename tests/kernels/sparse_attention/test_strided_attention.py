"""Strided attention equals its definition, for any sizes."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels.attention.attention import attention
from kernels.sparse_attention.strided_attention import strided_attention, strided_attention_reference
from tests.kernels.near import agree


@given(
    st.integers(1, 70), st.integers(1, 30), st.booleans(), st.booleans(), st.sampled_from([1, 2]), st.integers(0, 99)
)
def test_equals_its_definition(length, stride, padded, biased, groups, seed):
    torch.default_generator.manual_seed(seed)
    q, k, v = (
        torch.randn(2, heads, length, 3, dtype=torch.float64, requires_grad=True) for heads in (2, groups, groups)
    )
    options = {
        "stride": stride,
        "keys": torch.rand(2, length) < 0.6 if padded else None,
        "bias": torch.randn(2, length, dtype=torch.float64) if biased else None,
    }
    found, expected = strided_attention(q, k, v, **options), strided_attention_reference(q, k, v, **options)
    agree(found, expected, (q, k, v))


def test_a_stride_of_the_length_is_full_causal_attention_and_so_is_a_stride_of_one():
    q, k, v = (torch.randn(2, 2, 21, 4, dtype=torch.float64) for _ in range(3))
    full = attention(q, k, v, causal=True)
    for stride in (1, 20, 21, 500):
        torch.testing.assert_close(strided_attention(q, k, v, stride=stride), full, atol=1e-12, rtol=1e-12)


def test_a_query_without_keys_reads_zeros_and_passes_no_gradient():
    q, k, v = (torch.randn(1, 1, 9, 4, requires_grad=True) for _ in range(3))
    out = strided_attention(q, k, v, stride=3, keys=torch.arange(9)[None] > 3)
    assert not out[:, :, :4].any()
    for gradient in torch.autograd.grad(out.square().sum(), (q, k, v)):
        assert gradient.isfinite().all()
        assert not gradient[:, :, :4].any()
