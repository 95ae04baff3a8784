"""Nadaraya-Watson means equal their definition: odd sizes, masks, distance zero, and no near key."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from kernels.attention import nadaraya_watson as module
from kernels.attention.attention import attention
from kernels.attention.nadaraya_watson import COMPACT, nadaraya_watson, nadaraya_watson_reference
from tests.kernels.near import agree

KERNELS = pytest.mark.parametrize("kernel", ["gaussian", *COMPACT])


def _problem(queries, keys, heads=2, batch=2, width=3):
    torch.default_generator.manual_seed(0)
    shapes = (batch, heads, queries, width), (batch, heads, keys, width), (batch, heads, keys, 5)
    q, k, v = (torch.randn(shape, dtype=torch.float64) / 2 for shape in shapes)
    k[:, :, -1] = q[:, :, -1]  # a query that is a key
    return [value.requires_grad_() for value in (q, k, v)]


@KERNELS
@pytest.mark.parametrize("chunk", [1, 60, 1 << 20])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("queries", "keys", "causal"), [(1, 1, True), (5, 7, False), (7, 7, True), (3, 8, True)])
def test_equals_its_definition_whatever_the_chunks(monkeypatch, kernel, queries, keys, causal, masked, chunk):
    monkeypatch.setattr(module, "CHUNK", chunk)
    inputs = _problem(queries, keys)
    real = torch.rand(2, keys) < 0.6 if masked else None
    found = nadaraya_watson(*inputs, kernel, real, causal=causal)
    expected = nadaraya_watson_reference(*inputs, kernel, real, causal=causal)
    agree(found, expected, inputs)


@pytest.mark.parametrize("shift", [300.0, 3000.0])
@pytest.mark.parametrize("masked", [False, True])
def test_a_gaussian_keeps_its_digits_far_from_the_origin(shift, masked):
    exact = _problem(6, 9)
    q, k, v = ((each.detach() + (shift if each.shape[3] == 3 else 0)).float() for each in exact)
    exact = [each.double().requires_grad_() for each in (q, k, v)]  # the same numbers, rounded by the shift
    single = [each.requires_grad_() for each in (q, k, v)]
    real = torch.rand(2, 9) < 0.6 if masked else None
    found = nadaraya_watson(*single, "gaussian", real)
    expected = nadaraya_watson_reference(*exact, "gaussian", real)
    torch.testing.assert_close(found.double(), expected, atol=1e-5, rtol=1e-5)
    scale = torch.randn_like(found)
    gradients = torch.autograd.grad((found * scale).sum(), single)
    for one, other in zip(gradients, torch.autograd.grad((expected * scale).sum(), exact), strict=True):
        torch.testing.assert_close(one.double(), other, atol=1e-5, rtol=1e-4)


@KERNELS
def test_nothing_near_reads_zeros_and_passes_no_gradient(kernel):
    q, k, v = _problem(3, 4)
    real = torch.tensor([[True] * 4, [False] * 4])
    out = nadaraya_watson(q, k, v, kernel, real)
    assert not out[1].any()
    for gradient in torch.autograd.grad(out.square().sum(), (q, k, v), materialize_grads=True):
        assert gradient.isfinite().all()
        assert not gradient[1].any()
    if kernel != "gaussian":
        assert not nadaraya_watson(q + 50, k, v, kernel).any()


@KERNELS
def test_is_the_published_regression_on_numbers(kernel):
    torch.default_generator.manual_seed(0)
    places, answers = torch.rand(20, dtype=torch.float64), torch.randn(20, dtype=torch.float64)
    h = 0.2
    weigh = {
        "gaussian": lambda u: (-u * u / 2).exp(),
        "boxcar": lambda u: 0.5 * (u <= 1),
        "epanechnikov": lambda u: 0.75 * (1 - u * u) * (u <= 1),
        "triangular": lambda u: (1 - u) * (u <= 1),
    }[kernel]
    for at in (0.1, 0.5, 0.93):
        weights = [weigh((at - place).abs() / h) for place in places]
        expected = sum(w * y for w, y in zip(weights, answers, strict=True)) / sum(weights)
        query = torch.full((1, 1, 1, 1), at, dtype=torch.float64)
        found = nadaraya_watson(query / h, places.view(1, 1, -1, 1) / h, answers.view(1, 1, -1, 1), kernel)
        torch.testing.assert_close(found.squeeze(), expected)


@KERNELS
def test_a_wide_bandwidth_is_the_mean(kernel):
    q, k, v = _problem(3, 6)
    mean = v.mean(2, keepdim=True).expand(-1, -1, 3, -1)
    torch.testing.assert_close(nadaraya_watson(q / 1e9, k / 1e9, v, kernel), mean, atol=1e-8, rtol=1e-8)


def test_a_gaussian_of_keys_of_one_length_is_attention():
    q, k, v = _problem(4, 6)
    k = torch.nn.functional.normalize(k, dim=3)
    v = v[..., :3]
    torch.testing.assert_close(nadaraya_watson(q, k, v, "gaussian"), attention(q * 3**0.5, k, v))


@pytest.mark.parametrize("kernel", COMPACT)
def test_is_sound_as_an_operation(kernel):
    inputs = _problem(4, 5)
    torch.library.opcheck(torch.ops.tessera.nadaraya_watson.default, (*inputs, torch.rand(2, 5) < 0.6, kernel, False))
    with FlopCounterMode(display=False) as counter:
        nadaraya_watson(*inputs, kernel).sum().backward()
    # Distances and values; the backward pass counts twice.
    assert counter.get_total_flops() == 3 * 2 * (2 * 2) * (4 * 5) * (3 + 5)


def test_says_what_kernels_there_are():
    with pytest.raises(ValueError, match="gaussian or one of boxcar, epanechnikov, triangular, but got 'cosine'"):
        nadaraya_watson(*_problem(1, 1), "cosine")
