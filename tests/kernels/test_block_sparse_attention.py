"""Block-sparse attention against a mask over all pairs, for any sizes, lists and masks."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels.attention import attention_reference
from kernels.block_sparse_attention import (
    block_sparse_attention,
    block_sparse_attention_reference,
    by_distance,
    distances,
)


def _lists(batch, heads, queries, keys, many):
    """Blocks of keys for every block of queries, each at most once."""
    ranked = torch.rand(batch, heads, queries, keys).argsort(3)
    return ranked[..., : min(many, keys)]


@given(
    st.integers(1, 30), st.integers(1, 30), st.integers(1, 7), st.integers(1, 7), st.integers(1, 4), st.booleans(),
    st.booleans(), st.booleans(), st.booleans(), st.booleans(), st.sampled_from([1, 2]), st.integers(0, 99),
)  # fmt: skip
def test_equals_its_definition(Tq, Tk, rows, columns, many, own, apart, masked, padded, biased, groups, seed):
    torch.manual_seed(seed)
    q, k, v = (
        torch.randn(2, heads, size, 3, dtype=torch.float64, requires_grad=True)
        for heads, size in ((2, Tq), (groups, Tk), (groups, Tk))
    )
    N, M = -(-Tq // rows), -(-Tk // columns)
    blocks = _lists(2 if apart else 1, 2 if own else 1, N, M, many)
    shapes = ((1, 1, N, rows), (2, 1, 1, rows), (1, 2, N, 1), (1, 1, 1, 1), (2, 2, N, rows))
    options = {
        "rows": rows,
        "columns": columns,
        "allowed": torch.rand(*shapes[seed % 5], blocks.shape[3] * columns) < 0.6 if masked else None,
        "keys": torch.rand(2, Tk) < 0.6 if padded else None,
        "bias": torch.randn(*shapes[-seed % 5], blocks.shape[3] * columns, dtype=torch.float64) if biased else None,
    }
    found = block_sparse_attention(q, k, v, blocks, **options)
    expected = block_sparse_attention_reference(q, k, v, blocks, **options)
    torch.testing.assert_close(found, expected, atol=1e-10, rtol=1e-10)
    weights = torch.randn_like(found)
    gradients = [torch.autograd.grad((out * weights).sum(), (q, k, v)) for out in (found, expected)]
    torch.testing.assert_close(gradients[0], gradients[1], atol=1e-10, rtol=1e-10)


def test_a_list_of_all_blocks_is_full_attention():
    q, k, v = (torch.randn(2, 2, 21, 4, dtype=torch.float64) for _ in range(3))
    blocks = torch.arange(5).expand(1, 1, 3, 5)
    found = block_sparse_attention(q, k, v, blocks, rows=8, columns=5)
    torch.testing.assert_close(found, attention_reference(q, k, v), atol=1e-12, rtol=1e-12)


def test_a_query_without_keys_reads_zeros_and_passes_no_gradient():
    q, k, v = (torch.randn(2, 1, 8, 4, requires_grad=True) for _ in range(3))
    blocks = torch.tensor([[0], [1]]).view(1, 1, 2, 1)
    keys = torch.tensor([[True] * 8, [True] * 4 + [False] * 4])
    for bias in (None, torch.zeros(1, 1, 1, 1, 4)):
        out = block_sparse_attention(q, k, v, blocks, rows=4, columns=4, keys=keys, bias=bias)
        assert not out[1, :, 4:].any()
        for gradient in torch.autograd.grad(out.square().sum(), (q, k, v)):
            assert gradient.isfinite().all()
            assert not gradient[1, :, 4:].any()
            assert gradient[0].any()


def test_says_when_lists_and_queries_do_not_fit():
    q = k = v = torch.randn(1, 1, 9, 4)
    with pytest.raises(ValueError, match="the keys of 3 blocks of 4 queries, but got 2 lists"):
        block_sparse_attention(q, k, v, torch.zeros(1, 1, 2, 1, dtype=torch.int64), rows=4, columns=4)


def test_a_table_is_read_by_distance():
    table = torch.arange(13.0)[None] - 6  # of the distances from -6 to 6
    blocks = torch.tensor([[[[1, 0], [0, 1]]]])
    found = by_distance(table, distances(blocks, rows=4, columns=4) + 6)
    assert found.shape == (1, 1, 2, 4, 8)
    assert found[0, 0, 0, 1].tolist() == [3, 4, 5, 6, -1, 0, 1, 2]
    assert found[0, 0, 1, 3].tolist() == [-6, -6, -5, -4, -3, -2, -1, 0]
