"""Linear attention in Triton's chunks equals its recurrence in float64, forward and backward, for all tiles."""

import pytest
import torch

from kernels.dispatch.registry import Choice
from kernels.linear_attention.chunked import EVERYWHERE, chunked_attention
from kernels.linear_attention.decayed_linear_attention import (
    decayed_linear_attention,
    decayed_linear_attention_reference,
)
from kernels.linear_attention.linear_attention import EPSILON, linear_attention, linear_attention_reference
from kernels.rowwise.rows import triton_is_here

needs_triton = pytest.mark.skipif(not triton_is_here(), reason="Triton is not installed")


def _inputs(T, F, D, *, forgets=False, begun=False, normalised=False, heads=2, dtype=torch.float32):
    torch.default_generator.manual_seed(0)
    q, k, v = torch.rand(heads, T, F), torch.rand(heads, T, F), torch.randn(heads, T, D)
    inputs = {"q": q[None].to(dtype), "k": k[None].to(dtype), "v": v[None].to(dtype)}
    if forgets:
        inputs["decay"] = -torch.rand(1, heads, T)
    if begun:
        inputs["state"] = torch.rand(1, heads, F, D + normalised)
    return {name: x.requires_grad_() for name, x in inputs.items()}


def _near(found, expected, inputs, tolerance):
    weights = [torch.randn_like(part) for part in found]
    gradients = [
        torch.autograd.grad(sum((part * weight).sum() for part, weight in zip(parts, weights, strict=True)), inputs)
        for parts in (found, expected)
    ]
    for one, other in zip((*found, *gradients[0]), (*expected, *gradients[1]), strict=True):
        assert (one - other).abs().max() <= tolerance * other.abs().max().clamp(min=1)


def _wide(inputs):
    return {name: x.double() for name, x in inputs.items()}


@needs_triton
@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("forgets", [False, True])
@pytest.mark.parametrize(("T", "F", "D"), [(1, 4, 4), (37, 5, 20)])
def test_decayed_sums_equal_their_recurrence(T, F, D, forgets, begun):
    inputs = _inputs(T, F, D, forgets=forgets, begun=begun, heads=1 + (forgets and begun))
    found = chunked_attention(**inputs, **EVERYWHERE)
    # Sums of T * F products in float32.
    _near(found, decayed_linear_attention_reference(**_wide(inputs)), list(inputs.values()), T * F * 2**-24 + 2**-20)


@needs_triton
@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize(("T", "F", "D"), [(1, 4, 4), (37, 20, 5)])
def test_normalised_sums_equal_their_recurrence(T, F, D, begun):
    inputs = _inputs(T, F, D, begun=begun, normalised=True, heads=1 + begun)
    found = chunked_attention(**inputs, normalised=True, eps=EPSILON, **EVERYWHERE)
    expected = linear_attention_reference(**_wide(inputs), causal=True)
    _near(found, expected, list(inputs.values()), T * F * 2**-24 + 2**-20)


@needs_triton
def test_forgets_everything_without_becoming_nan():
    q, k, v = torch.randn(3, 1, 1, 40, 4)
    out, state = chunked_attention(q, k, v, decay=torch.full((1, 1, 40), -200.0), **EVERYWHERE)
    torch.testing.assert_close(out, (q * k).sum(3, keepdim=True) * v)
    assert state.isfinite().all()


@pytest.mark.parametrize("positions", [16, 256])
def test_chunks_of_any_length_give_the_same(positions):
    inputs = _inputs(70, 5, 6)
    config = Choice.of("chunks", {"positions": positions})
    found = decayed_linear_attention(**inputs, config=config)
    torch.testing.assert_close(found, decayed_linear_attention(**inputs), atol=1e-4, rtol=1e-4)
    found = linear_attention(**inputs, causal=True, config=config)
    torch.testing.assert_close(found, linear_attention(**inputs, causal=True), atol=1e-4, rtol=1e-4)


def test_says_what_triton_refuses():
    x = torch.rand(1, 1, 3, 4)
    with pytest.raises(ValueError, match="without causality two products are enough"):
        linear_attention(x, x, x, causal=False, config=Choice.of("triton"))
    with pytest.raises(ValueError, match="a Triton kernel needs a GPU"):
        linear_attention(x, x, x, causal=True, config=Choice.of("triton"))
    with pytest.raises(ValueError, match="it computes in float32"):
        decayed_linear_attention(x.double(), x.double(), x.double(), config=Choice.of("triton"))
