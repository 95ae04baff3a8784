"""Long-short attention equals its definition, for any sizes."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels.sparse_attention.long_short_attention import (
    long_short_attention,
    long_short_attention_reference,
    segments,
)
from tests.kernels.near import agree


@given(st.integers(1, 50), st.sampled_from([2, 4, 10, 64]), st.integers(1, 5), st.booleans(), st.integers(0, 99))
def test_equals_its_definition(length, window, slots, masked, seed):
    torch.default_generator.manual_seed(seed)
    q, k, v, far_k, far_v = (
        torch.randn(2, 2, size, 3, dtype=torch.float64, requires_grad=True)
        for size in (length, length, length, slots, slots)
    )
    keys = torch.rand(2, length) < 0.4 if masked else None
    found, expected = (
        form(q, k, v, far_k, far_v, window=window, keys=keys)
        for form in (long_short_attention, long_short_attention_reference)
    )
    agree(found, expected, (q, k, v, far_k, far_v))


def test_a_sequence_without_a_real_position_reads_zeros():
    q = torch.randn(1, 1, 5, 3)
    out = long_short_attention(q, q, q, q[:, :, :2], q[:, :, :2], window=2, keys=torch.zeros(1, 5, dtype=torch.bool))
    assert not out.any()


def test_a_query_reads_two_windows():
    assert segments(100, 10).columns == 20
    assert segments(10, 10).columns == 10
