"""Attention with a span equals its definition, for any tiles, and in its limits."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.sparse_attention.sliding_window_attention import sliding_window_attention
from kernels.sparse_attention.span_attention import span_attention, span_attention_reference, span_tiling
from tests.kernels.near import agree


@settings(max_examples=40)
@given(
    st.integers(1, 40), st.integers(0, 20), st.integers(1, 25), st.integers(1, 9), st.booleans(), st.booleans(),
    st.booleans(), st.booleans(), st.integers(0, 99),
)  # fmt: skip
def test_equals_its_definition(queries, past, span, ramp, zeros, reach, each, masked, seed):
    torch.default_generator.manual_seed(seed)
    length = queries + past
    shapes = (2, 2, queries, 3), (2, 2, length, 3), (2, 2, length, 3), (span, 3)
    inputs = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    z = torch.rand((2, 2, queries) if each else (2, 1), dtype=torch.float64).mul(span).requires_grad_()
    options = {"ramp": ramp, "zeros": zeros, "reach": reach, "keys": torch.rand(2, length) < 0.6 if masked else None}
    found, expected = (form(*inputs, z, **options) for form in (span_attention, span_attention_reference))
    agree(found, expected, (*inputs, z), 1e-9)


def test_a_full_span_without_places_is_a_window_of_what_came_before():
    """With keys and values one step later, the newest position of a window of S is the previous one."""
    torch.default_generator.manual_seed(0)
    S, (q, k, v) = 7, torch.randn(3, 2, 2, 40, 4, dtype=torch.float64)
    found = span_attention(q, k, v, torch.zeros(S, 4).double(), torch.full((2, 1), float(S)), ramp=3, zeros=False)
    shifted = (h[:, :, :-1] for h in (k, v))
    window = sliding_window_attention(q[:, :, 1:], *shifted, window=S, causal=True)
    torch.testing.assert_close(found[:, :, 1:], window, atol=1e-7, rtol=1e-7)  # except the 1e-8 of the normaliser
    assert not found[:, :, 0].any()


def test_the_sum_of_the_weights_lacks_the_published_epsilon():
    """Values of one give the sum of the weights: s / (s + 1e-8), s is what the mask leaves of the softmax."""
    S, ramp = 6, 4
    q, k = torch.zeros(2, 1, 1, 9, 2, dtype=torch.float64)
    ones, z = torch.ones(1, 1, 9, 2, dtype=torch.float64), torch.zeros(1, 1, dtype=torch.float64)
    found = span_attention(q, k, ones, torch.zeros(S, 2, dtype=torch.float64), z, ramp=ramp, zeros=False)[0, 0, -1, 0]
    left = sum((ramp - x) / ramp for x in range(ramp)) / ramp
    assert found.item() == pytest.approx(left / (left + 1e-8), abs=1e-12)


def test_the_released_form_adds_its_number_to_what_the_mask_leaves_of_all_positions():
    """Nearly all of the softmax is beyond the span."""
    q = torch.ones(1, 1, 1, 1, dtype=torch.float64)
    k = torch.tensor([20.0, 0.0, 0.0, 0.0], dtype=torch.float64).view(1, 1, 4, 1)
    v = torch.ones_like(k)
    near = {"places": torch.zeros(3, 1).double(), "z": torch.zeros(1, 1).double(), "ramp": 1, "zeros": False}
    left = 1 / (2 + math.exp(20))
    assert span_attention(q, k, v, **near).item() == pytest.approx(1 / (1 + 1e-8), rel=1e-12)
    assert span_attention(q, k, v, **near, reach=True).item() == pytest.approx(left / (left + 1e-8), rel=1e-12)


@pytest.mark.parametrize("zeros", [False, True])
def test_beyond_the_ramp_nothing_is_read_however_well_it_fits(zeros):
    torch.default_generator.manual_seed(0)
    q, k, v = torch.randn(3, 1, 1, 20, 4, dtype=torch.float64)
    places, z = torch.randn(12, 4, dtype=torch.float64), torch.full((1, 1), 2.0, dtype=torch.float64)
    expected = span_attention(q, k, v, places, z, ramp=3, zeros=zeros)
    k[:, :, :14] = 1e3 * k[:, :, :14].sign()
    found = span_attention(q, k, v, places, z, ramp=3, zeros=zeros)
    assert found[:, :, 19].equal(expected[:, :, 19])
    trimmed = span_attention(q, k, v, places[:5], z, ramp=3, zeros=zeros)
    torch.testing.assert_close(found, trimmed, atol=1e-12, rtol=1e-12)


@given(st.integers(1, 3000), st.integers(0, 600), st.integers(1, 500), st.booleans())
def test_the_cut_covers_every_query_and_wastes_little(queries, past, span, zeros):
    tiles = span_tiling(queries, queries + past, span, zeros=zeros)
    assert (tiles.count - 1) * tiles.rows < queries <= tiles.count * tiles.rows
    assert tiles.columns < 2 * max(span, 16)
    assert math.isclose(tiles.width, span) or tiles.width == max(1, queries + past - 1)
