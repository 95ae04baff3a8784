"""Dynamic convolution against its definition."""

import pytest
import torch

from kernels.dynamic_convolution import CHUNK, chunks, dynamic_convolution, dynamic_convolution_reference


def _problem(batch, length, heads, width, taps):
    torch.manual_seed(0)
    x = torch.randn(batch, length + taps - 1, heads * width, dtype=torch.float64, requires_grad=True)
    return x, torch.randn(batch, length, heads, taps, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize(
    ("batch", "length", "heads", "width", "taps"),
    [(1, 1, 1, 1, 1), (2, 63, 3, 5, 4), (3, 4, 1, 7, 15), (1, 2 * CHUNK, 2, 1, 3), (2, CHUNK + 1, 2, 3, 1)],
)
def test_equals_its_definition(batch, length, heads, width, taps):
    x, each = _problem(batch, length, heads, width, taps)
    found, expected = dynamic_convolution(x, each), dynamic_convolution_reference(x, each)
    assert found.shape == (batch, length, heads * width)
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=1e-12)
    scale = torch.randn_like(found)
    gradients = [torch.autograd.grad((out * scale).sum(), (x, each)) for out in (found, expected)]
    torch.testing.assert_close(gradients[0], gradients[1], atol=1e-10, rtol=1e-10)


def test_second_derivatives_are_right_too():
    x, each = _problem(1, 3, 2, 2, 3)
    assert torch.autograd.gradgradcheck(dynamic_convolution, (x, each))


def test_chunks_cover_the_length_and_no_whole_chunk_more():
    for length in (1, CHUNK - 1, CHUNK, CHUNK + 1, 10 * CHUNK + 3):
        number, positions = chunks(length)
        assert length <= number * positions < length + positions
