"""Sliding-window attention equals its definition, for any sizes."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels.attention.attention import attention
from kernels.sparse_attention.sliding_window_attention import (
    Everywhere,
    reach,
    sliding_window_attention,
    sliding_window_attention_reference,
    tiling,
)
from tests.kernels.near import agree


def _agree(queries, past, groups, options):
    """Outputs and all gradients equal the definition."""
    length = queries + past
    q, k, v = (
        torch.randn(2, heads, size, 3, dtype=torch.float64, requires_grad=True)
        for heads, size in ((2, queries), (groups, length), (groups, length))
    )
    inputs = [q, k, v]
    if (everywhere := options.get("everywhere")) is not None:
        inputs += [value for value in (everywhere.k, everywhere.v, everywhere.bias) if value is not None]
    found = sliding_window_attention(q, k, v, **options)
    expected = sliding_window_attention_reference(q, k, v, **options)
    agree(found, expected, inputs)


@given(
    st.integers(1, 40), st.integers(0, 16), st.integers(1, 50), st.booleans(), st.booleans(), st.booleans(),
    st.sampled_from([1, 2]), st.sampled_from([1, 1, 2, 3, 7]), st.integers(0, 99),
)  # fmt: skip
def test_equals_its_definition(queries, past, window, causal, masked, biased, groups, dilation, seed):
    torch.default_generator.manual_seed(seed)
    options = {
        "window": window,
        "causal": causal,
        "dilation": dilation,
        "keys": torch.rand(1 + seed % 2, queries + past) < 0.6 if masked else None,
        "bias": torch.randn(2, sum(reach(window, causal)) + 1, dtype=torch.float64) if biased else None,
    }
    _agree(queries, past, groups, options)


@given(
    st.integers(1, 40), st.integers(1, 24), st.booleans(), st.booleans(), st.booleans(), st.booleans(),
    st.sampled_from([1, 2]), st.sampled_from([1, 3]), st.integers(1, 4), st.integers(0, 99),
)  # fmt: skip
def test_reads_what_all_read_beside_the_window(queries, window, masked, some, biased, own, groups, dilation, g, seed):
    torch.default_generator.manual_seed(seed)
    more = torch.randn(2, 2, groups, g, 3, dtype=torch.float64, requires_grad=True)
    everywhere = Everywhere(
        k=more[0],
        v=more[1],
        keys=torch.rand(2, g) < 0.6 if some else None,
        bias=torch.randn(1, 2, queries, g, dtype=torch.float64, requires_grad=True) if biased else None,
    )
    options = {
        "window": window,
        "causal": False,
        "dilation": dilation,
        "keys": torch.rand(2, queries) < 0.6 if masked else None,
        "bias": torch.randn(2, sum(reach(window, False)) + 1, dtype=torch.float64) if own else None,
        "everywhere": everywhere,
    }
    _agree(queries, 0, groups, options)


def test_a_window_of_the_length_is_full_attention():
    q, k, v = (torch.randn(2, 2, 41, 4, dtype=torch.float64) for _ in range(3))
    for causal, window in ((True, 41), (False, 82)):
        found = sliding_window_attention(q, k, v, window=window, causal=causal)
        torch.testing.assert_close(found, attention(q, k, v, causal=causal), atol=1e-12, rtol=1e-12)


def test_stretches_are_not_copied():
    q, k, v = (torch.randn(2, 2, 512, 4, requires_grad=True) for _ in range(3))
    kept = {}
    with torch.autograd.graph.saved_tensors_hooks(
        lambda x: kept.setdefault(x.untyped_storage().data_ptr(), x), lambda x: x
    ):
        sliding_window_attention(q, k, v, window=128, causal=True)
    heads = [tensor for tensor in kept.values() if tensor.shape[-1] == 4]
    assert max(tensor.untyped_storage().nbytes() for tensor in heads) <= 1.5 * k.nbytes


@given(st.integers(1, 5000), st.integers(1, 700), st.booleans())
def test_the_cut_covers_every_query_and_wastes_little(length, window, causal):
    tiles = tiling(length, length, window, causal)
    assert (tiles.count - 1) * tiles.rows < length <= tiles.count * tiles.rows
    assert tiles.columns <= 2 * max(window, 16) + tiles.rows
