"""Additive attention in chunks equals its definition for all pairs at once."""

import pytest
import torch

from kernels.attention import additive_attention as module
from kernels.attention.additive_attention import additive_attention, additive_attention_reference
from searchspace.testing import count_flops
from tests.kernels.near import agree


def _problem(queries, keys, heads=2, batch=2):
    torch.default_generator.manual_seed(0)
    shapes = (batch, heads, queries, 3), (batch, heads, keys, 3), (batch, heads, keys, 4), (heads, 3)
    return [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]


@pytest.mark.parametrize("chunk", [1, 100, 1 << 20])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("queries", "keys", "causal"), [(1, 1, True), (5, 7, False), (7, 7, True), (3, 8, True)])
def test_equals_its_definition_whatever_the_chunks(monkeypatch, queries, keys, causal, masked, chunk):
    monkeypatch.setattr(module, "CHUNK", chunk)
    inputs = _problem(queries, keys)
    real = torch.rand(2, keys) < 0.6 if masked else None
    found = additive_attention(*inputs, real, causal=causal)
    expected = additive_attention_reference(*inputs, real, causal=causal)
    agree(found, expected, inputs, 1e-11)


def test_a_query_without_keys_reads_zeros_and_passes_no_gradient():
    inputs, real = _problem(3, 4), torch.tensor([[True] * 4, [False] * 4])
    out = additive_attention(*inputs, real)
    assert not out[1].any()
    for gradient in torch.autograd.grad(out.square().sum(), inputs[:3]):
        assert gradient[0].any()
        assert not gradient[1].any()


def test_is_sound_as_an_operation_and_counts_the_products_of_its_definition():
    inputs = _problem(4, 5)
    torch.library.opcheck(torch.ops.tessera.additive_attention.default, (*inputs, torch.rand(2, 5) < 0.6, False))
    torch.library.opcheck(torch.ops.tessera.additive_attention.default, (*_problem(5, 5), None, True))
    one, other = (count_flops(lambda: call(*inputs)) for call in (additive_attention, additive_attention_reference))  # noqa: B023
    assert one == other > (0, 0)


def test_memory_is_that_of_one_chunk(monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 2 * 2 * 64 * 3 * 5)  # five queries
    sizes = []
    scores = module._scores

    def seen(*arguments):
        opened, out = scores(*arguments)
        sizes.append(opened.numel())
        return opened, out

    monkeypatch.setattr(module, "_scores", seen)
    additive_attention(*_problem(64, 64)).sum().backward()
    assert len(sizes) == 2 * 13
    assert max(sizes) == module.CHUNK
