"""Decayed linear attention equals its recurrence, for any length and any chunks."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels.dispatch.registry import Choice
from kernels.linear_attention.decayed_linear_attention import (
    decayed_linear_attention,
    decayed_linear_attention_reference,
)
from kernels.linear_attention.linear_attention import CHUNK
from tests.kernels.near import agree


@given(st.integers(1, 2 * CHUNK + 5), st.booleans(), st.booleans(), st.integers(0, 99))
def test_equals_its_definition(length, forgets, begun, seed):
    torch.default_generator.manual_seed(seed)
    q, k, v = (torch.randn(2, 3, length, width, dtype=torch.float64, requires_grad=True) for width in (5, 5, 4))
    inputs = [q, k, v]
    decay = state = None
    if forgets:
        decay = (-torch.rand(2, 3, length, dtype=torch.float64)).requires_grad_()
        inputs.append(decay)
    if begun:
        state = torch.rand(2, 3, 5, 4, dtype=torch.float64, requires_grad=True)
        inputs.append(state)
    found = decayed_linear_attention(q, k, v, decay=decay, state=state)
    expected = decayed_linear_attention_reference(q, k, v, decay=decay, state=state)
    agree(found, expected, inputs)


def test_forgets_everything_without_becoming_nan():
    q, k, v = torch.randn(3, 1, 1, 150, 4)
    decay = torch.full((1, 1, 150), -200.0)
    out, state = decayed_linear_attention(q, k, v, decay=decay)
    torch.testing.assert_close(out, (q * k).sum(3, keepdim=True) * v)
    assert state.isfinite().all()


def test_equals_its_definition_piece_by_piece_where_no_gradient_is_wanted(monkeypatch):
    monkeypatch.setattr("kernels.linear_attention.decayed_linear_attention.SLAB", CHUNK)
    torch.default_generator.manual_seed(0)
    q, k, v = torch.randn(3, 2, 1, 2 * CHUNK + 5, 4, dtype=torch.float64)
    for decay in (None, -torch.rand(2, 1, 2 * CHUNK + 5, dtype=torch.float64)):
        with torch.no_grad():
            found = decayed_linear_attention(q, k, v, decay=decay)
        expected = decayed_linear_attention_reference(q, k, v, decay=decay)
        torch.testing.assert_close(found, expected, atol=1e-10, rtol=1e-10)


def test_half_precision_does_not_lose_how_much_is_left():
    torch.default_generator.manual_seed(0)
    q, k, v = torch.randn(3, 2, 2, 256, 8).bfloat16()
    decay = -torch.rand(2, 2, 256).bfloat16()
    expected, _ = decayed_linear_attention_reference(q.double(), k.double(), v.double(), decay=decay.double())
    for positions in (16, 256):
        found, _ = decayed_linear_attention(q, k, v, decay=decay, config=Choice.of("chunks", {"positions": positions}))
        assert (found - expected).norm() < 2**-7 * expected.norm()
