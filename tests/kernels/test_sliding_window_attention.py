"""Sliding-window attention against its definition, for any sizes."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels.sliding_window_attention import (
    reach,
    sliding_window_attention,
    sliding_window_attention_reference,
    tiling,
)


@given(
    st.integers(1, 70), st.integers(0, 30), st.integers(1, 90), st.booleans(), st.booleans(), st.booleans(),
    st.sampled_from([1, 2]), st.integers(0, 99),
)  # fmt: skip
def test_equals_its_definition(queries, past, window, causal, masked, biased, groups, seed):
    torch.manual_seed(seed)
    length = queries + past
    q, k, v = (
        torch.randn(2, heads, size, 3, dtype=torch.float64, requires_grad=True)
        for heads, size in ((2, queries), (groups, length), (groups, length))
    )
    options = {
        "window": window,
        "causal": causal,
        "keys": torch.rand(2, length) < 0.6 if masked else None,
        "bias": torch.randn(2, sum(reach(window, causal)) + 1, dtype=torch.float64) if biased else None,
    }
    found, expected = (
        sliding_window_attention(q, k, v, **options),
        sliding_window_attention_reference(q, k, v, **options),
    )
    torch.testing.assert_close(found, expected, atol=1e-10, rtol=1e-10)
    weights = torch.randn_like(found)
    gradients = [torch.autograd.grad((out * weights).sum(), (q, k, v)) for out in (found, expected)]
    torch.testing.assert_close(gradients[0], gradients[1], atol=1e-10, rtol=1e-10)


@given(st.integers(1, 5000), st.integers(1, 700), st.booleans())
def test_the_cut_covers_every_query_and_wastes_little(length, window, causal):
    tiles = tiling(length, length, window, causal)
    assert (tiles.count - 1) * tiles.rows < length <= tiles.count * tiles.rows
    assert tiles.columns <= 2 * max(window, 16) + 1
