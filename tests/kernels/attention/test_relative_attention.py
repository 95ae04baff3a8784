"""Attention with clipped relative positions equals the form with a vector for each pair."""

import pytest
import torch

from kernels.attention.relative_attention import relative_attention, relative_attention_reference
from searchspace.testing import peak_bytes
from tests.kernels.near import agree


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("values", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("queries", "past", "clip"), [(1, 0, 1), (1, 9, 4), (7, 0, 3), (7, 0, 30), (5, 12, 2), (5, 12, 15), (20, 1, 1)]
)
def test_equals_its_definition(queries, past, clip, causal, values, masked):
    torch.default_generator.manual_seed(0)
    shapes = (2, 2, queries, 4), *[(2, 2, queries + past, 4)] * 2, *[(2 * clip + 1, 4)] * 2
    inputs = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    arguments = inputs if values else [*inputs[:4], None]
    options = {"causal": causal, "keys": torch.rand(2, queries + past) < 0.5 if masked else None}
    found, expected = (form(*arguments, **options) for form in (relative_attention, relative_attention_reference))
    agree(found, expected, inputs if values else inputs[:4])


def test_no_vector_of_a_pair_is_ever_made():
    T, D = 64, 128
    q, k, v = (torch.randn(1, 1, T, D, requires_grad=True) for _ in range(3))
    tables = [torch.randn(9, D, requires_grad=True) for _ in range(2)]
    peak = peak_bytes(lambda: relative_attention(q, k, v, *tables).sum().backward())
    assert peak < T * T * D * 4 / 4
