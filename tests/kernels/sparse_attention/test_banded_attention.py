"""Attention over bands equals its definition, for a window alone and together with vectors of chunks."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels.sparse_attention.banded_attention import Reading, band, banded_attention, banded_attention_reference
from tests.kernels.near import agree


def _reading(found, q, units, masked):
    B, H, _, D = q.shape
    keys = units * found.slots
    k, v = (torch.randn(B, H, keys, D, dtype=torch.float64, requires_grad=True) for _ in range(2))
    p = torch.randn_like(q).requires_grad_()
    r = torch.randn(H, found.distances, D, dtype=torch.float64, requires_grad=True)
    return Reading(found, q, p, k, v, r, torch.rand(B, keys) < 0.6 if masked else None)


@given(
    st.integers(1, 40), st.integers(0, 9), st.integers(1, 24), st.integers(1, 5), st.integers(1, 3),
    st.one_of(st.none(), st.integers(1, 9)), st.integers(0, 9), st.booleans(), st.integers(0, 99),
)  # fmt: skip
def test_equals_its_definition(queries, before, window, step, slots, reach, chunks, masked, seed):
    torch.default_generator.manual_seed(seed)
    before, past, chunks = min(before, window - 1), seed % step, min(chunks, reach or chunks)
    q = torch.randn(2, 2, queries, 3, dtype=torch.float64, requires_grad=True)
    near = band(queries, before=before, reach=window)
    readings = [_reading(near, q, before + queries, False)]
    far = band(queries, before=chunks - 1, reach=reach, step=step, slots=slots, past=past)
    if far is not None:  # one unit more than is read, because the last chunk may be full
        readings.append(_reading(far, q, chunks + far.units, masked))
    real = torch.rand(2, queries) < 0.8 if masked else None
    found = banded_attention(readings, queries=real)
    expected = banded_attention_reference(readings, queries=real)
    agree(found, expected, [q, *(part for read in readings for part in (read.p, read.k, read.v, read.r))])


def test_without_anything_before_it_a_band_that_leaves_out_its_own_unit_is_no_band():
    assert band(4, before=-1, reach=3, step=4) is None
    assert band(5, before=-1, reach=3, step=4) is not None


@given(st.integers(1, 5000), st.one_of(st.none(), st.integers(1, 300)), st.integers(1, 64), st.integers(1, 4))
def test_the_cut_covers_every_query_and_wastes_little(length, reach, step, slots):
    found = band(length, before=0, reach=reach, step=step, slots=slots)
    assert (found.count - 1) * found.rows < length <= found.count * found.rows
    assert found.columns <= 2 * max(found.distances, 16 * slots)
