"""Linear attention equals its recurrence, for any length and any chunks."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels.linear_attention.linear_attention import CHUNK, chunks, linear_attention, linear_attention_reference
from tests.kernels.near import agree


def _inputs(length, features=5, dtype=torch.float64):
    q, k = torch.rand(2, 2, 3, length, features, dtype=dtype)
    return tuple(x.requires_grad_() for x in (q, k, torch.randn(2, 3, length, 4, dtype=dtype)))


@given(st.integers(1, 2 * CHUNK + 5), st.booleans(), st.booleans(), st.integers(0, 99))
def test_equals_its_definition(length, causal, begun, seed):
    torch.default_generator.manual_seed(seed)
    q, k, v = _inputs(length)
    state = torch.rand(2, 3, 5, 5, dtype=torch.float64, requires_grad=True) if begun else None
    inputs = (q, k, v, state) if begun else (q, k, v)
    found = linear_attention(q, k, v, causal=causal, state=state)
    expected = linear_attention_reference(q, k, v, causal=causal, state=state)
    agree(found, expected, inputs)


def test_a_short_sequence_is_one_chunk_of_its_length():
    assert chunks(1) == (1, 1)
    assert chunks(CHUNK) == (1, CHUNK)
    assert chunks(CHUNK + 1) == (2, CHUNK)
