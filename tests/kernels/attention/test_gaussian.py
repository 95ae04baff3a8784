"""Gaussian means keep the accuracy of float32 wherever the keys are: shifts, outliers, clusters, drift."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from kernels.attention import gaussian as module
from kernels.attention.gaussian import gaussian
from kernels.dispatch.mode import plain

KEYS = 11


def _definition(q, k, v, keys, causal):
    """softmax_j(-|q - k_j|^2 / 2) v_j, one difference at a time."""
    scores = -(q[:, :, :, None] - k[:, :, None]).square().sum(4) / 2
    allowed = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool)
    allowed = allowed.tril(k.shape[2] - q.shape[2]) if causal else allowed
    allowed = allowed if keys is None else allowed & keys[:, None, None]
    return scores.masked_fill(~allowed, -1e300).softmax(3).mul(allowed) @ v


def _at(where, length):
    """What is added to each of the last `length` of KEYS positions."""
    place = torch.arange(KEYS - length, KEYS)
    return {
        "shift": 3000.0 + 0 * place,
        "first": 2000.0 * (place == 0),
        "last": 1e7 * (place == KEYS - 1),
        "clusters": 1000.0 * (place % 2),
        "drift": 3.0 * place**2,
        "masked": 1e4 * (place == 2),
    }[where][:, None]


def _problem(where, queries=KEYS):
    torch.default_generator.manual_seed(0)
    q, k, v = (torch.randn(2, 2, n, 3) for n in (queries, KEYS, KEYS))
    return q + _at(where, queries), k + _at(where, KEYS), v


PLACES = pytest.mark.parametrize("where", ["shift", "first", "last", "clusters", "drift", "masked"])


@PLACES
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("queries", [1, 4, KEYS])
def test_means_and_gradients_keep_their_digits_wherever_keys_are(monkeypatch, where, causal, queries):
    monkeypatch.setattr(module, "CHUNK", 100)
    values = _problem(where, queries)
    real = torch.ones(2, KEYS, dtype=torch.bool)
    real[1, [0, 2, 5]] = False
    single, exact = ([each.to(dtype).requires_grad_() for each in values] for dtype in (torch.float32, torch.float64))
    found, expected = gaussian(*single, real, causal=causal), _definition(*exact, real, causal)
    torch.testing.assert_close(found.double(), expected, atol=1e-5, rtol=1e-5)
    scale = torch.randn_like(found)
    gradients = torch.autograd.grad((found * scale).sum(), single)
    for one, other in zip(gradients, torch.autograd.grad((expected * scale).sum(), exact), strict=True):
        assert (one - other).abs().max() <= 1e-5 * max(1, other.abs().max())
    with plain(), torch.no_grad():
        if where != "last":  # exports expand the square in float64
            torch.testing.assert_close(gaussian(*single, real, causal=causal).double(), expected, atol=1e-5, rtol=1e-5)


@PLACES
def test_piece_by_piece_gives_the_means_of_the_whole(where):
    q, k, v = _problem(where)
    pieces = [
        gaussian(q[:, :, first:last], k[:, :, :last], v[:, :, :last], causal=True)
        for first, last in ((0, 1), (1, 3), (3, 8), (8, KEYS))
    ]
    torch.testing.assert_close(torch.cat(pieces, dim=2), gaussian(q, k, v, causal=True), atol=1e-5, rtol=1e-5)


def test_what_is_near_is_attention_and_what_is_not_takes_the_work_that_is_declared():
    for where, expected in (("shift", False), ("clusters", True)):
        values = [each.requires_grad_() for each in _problem(where)]
        with FlopCounterMode(display=False) as counter:
            gaussian(*values).sum().backward()
        assert ("gaussian" in str(counter.get_flop_counts())) is expected
    assert counter.get_total_flops() == 3 * 4 * (2 * 2) * KEYS * KEYS * 4


def test_is_sound_as_an_operation():
    q, k, v = (each.double().requires_grad_() for each in _problem("clusters", 4))
    arguments = (q, k, v, torch.rand(2, KEYS) < 0.6, k[:, :, :1].detach(), True)
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")  # compiled by the contract of the block
    torch.library.opcheck(torch.ops.tessera.gaussian.default, arguments, test_utils=tests)


def test_a_query_without_keys_gives_zeros():
    q, k, v = _problem("first", 2)
    assert not gaussian(q, k[:, :, :0], v[:, :, :0]).any()
    assert not gaussian(q, k, v, torch.zeros(2, KEYS, dtype=torch.bool)).any()
