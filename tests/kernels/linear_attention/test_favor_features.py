"""Random features equal their definition; the tests of primitives check what they approximate."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.dispatch.registry import Choice
from kernels.linear_attention.favor_features import (
    KINDS,
    OPERATION,
    favor_features,
    favor_features_reference,
)
from kernels.rowwise.rows import triton_is_here
from searchspace.testing import count_flops

needs_triton = pytest.mark.skipif(not triton_is_here(), reason="Triton is not installed")
TRITON = pytest.param("triton", marks=needs_triton)
WAYS = ["torch", "blocked", TRITON]


def _call(name, x, W, settings=None, **options):
    """Call an implementation, even if this device would not choose it."""
    each = OPERATION.implementations[name]
    return each.call(x, W, **{"scale": 1.0, "kind": "positive", **options}, **{**each.default, **(settings or {})})


def _results(outs, x):
    """Features, maxima, and the gradient of a weighted sum; the weights are the same for all implementations."""
    features, maxima = outs
    weights = torch.randn(features.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    (gradient,) = torch.autograd.grad((features.double() * weights).sum(), x)
    assert not maxima.requires_grad
    return [features.detach(), maxima, gradient]


def _both(name, x, W, settings=None, **options):
    found = _results(_call(name, x, W, settings, **options), x)
    return found, _results(favor_features_reference(x, W, **options), x)


@settings(max_examples=20)
@given(
    st.sampled_from(KINDS), st.integers(1, 3), st.integers(1, 3), st.integers(1, 9), st.integers(1, 6),
    st.integers(1, 9), st.booleans(), st.floats(0.1, 2), st.sampled_from([4, 1024]),
)  # fmt: skip
def test_equals_its_definition(kind, B, H, T, D, M, own, scale, rows):
    x = torch.randn(B, H, T, D, dtype=torch.float64, requires_grad=True)
    W = torch.randn(*[H] * own, M, D, dtype=torch.float64)
    for name, tried in (("torch", {}), ("blocked", {"rows": rows})):
        found, expected = _both(name, x, W, tried, kind=kind, scale=scale)
        torch.testing.assert_close(found, expected, atol=1e-12, rtol=1e-12)


def test_the_definition_is_the_formula():
    x, W = torch.randn(3, 4), torch.randn(5, 4)
    features, maxima = favor_features_reference(x, W, scale=0.5)
    for row, feature, top in zip(x * 0.5, features, maxima, strict=True):
        exponents = torch.stack([w @ row - row @ row / 2 for w in W])
        torch.testing.assert_close(feature, (exponents - exponents.max()).exp())
        torch.testing.assert_close(top[0], exponents.max())
    features, maxima = favor_features_reference(x, W, kind="periodic")
    torch.testing.assert_close(features, torch.cat([(x @ W.T).sin(), (x @ W.T).cos()], dim=1) / math.sqrt(5))
    assert not maxima.any()


@needs_triton
@pytest.mark.parametrize("shape", [(1, 1), (7, 40), (2, 3, 17), (2, 1, 2, 5, 4)], ids=str)
def test_tiles_take_rows_of_any_shape(shape):
    torch.default_generator.manual_seed(0)
    x, W = torch.randn(shape, requires_grad=True), torch.randn(3, shape[-1])
    found, expected = _both("triton", x, W)
    torch.testing.assert_close(found, expected, atol=64 * 2**-24, rtol=64 * 2**-24)


@pytest.mark.parametrize("name", WAYS)
def test_nothing_overflows_where_exponents_are_large(name):
    x = torch.tensor([[30.0, 0.0], [-1e3, 1e3], [0.0, 0.0]], requires_grad=True)
    features, maxima, gradient = _results(_call(name, x, torch.tensor([[40.0, 0.0], [0.0, 1.0]])), x)
    assert features.isfinite().all()
    assert (features.amax(1) == 1).all()
    torch.testing.assert_close(maxima[:, 0], torch.tensor([750.0, 1e3 - 1e6, 0.0]))
    assert gradient.isfinite().all()


@pytest.mark.parametrize("config", [None, Choice.of("blocked")], ids=str)
def test_mixed_precision_does_not_round_exponents(config):
    x, W = torch.randn(9, 8).bfloat16(), torch.randn(5, 8)
    with torch.autocast("cpu", torch.bfloat16):
        features, _ = favor_features(x, W, config=config)
    torch.testing.assert_close(features, favor_features_reference(x.float(), W)[0])


@pytest.mark.parametrize("name", ["blocked", TRITON])
def test_counts_the_product_as_torch_does(name):
    x, W = torch.randn(2, 3, 5, 4, requires_grad=True), torch.randn(3, 6, 4)
    assert count_flops(lambda: _call(name, x, W)[0]) == count_flops(lambda: _call("torch", x, W)[0])


def test_says_what_does_not_fit():
    x, W = torch.randn(2, 5, 4), torch.randn(3, 4)
    with pytest.raises(ValueError, match="kind must be one of positive, periodic, but got 'cosine'"):
        favor_features(x, W, kind="cosine")
    with pytest.raises(ValueError, match="Random matrices are constants"):
        favor_features(x, W.requires_grad_())
    with pytest.raises(ValueError, match=r"but got \[3, 6, 4\] for \[2, 5, 4\]"):
        favor_features(x, torch.randn(3, 6, 4))
    with pytest.raises(ValueError, match="a Triton kernel needs a GPU"):
        favor_features(x, W.detach(), config=Choice.of("triton"))
    wide = OPERATION.problem("cuda", "float32", (4, 1, 8, 2000), ("positive", False))
    reason = OPERATION.implementations["triton"].refuses(wide)
    assert reason == "a program holds at most 1024 products of a row"
