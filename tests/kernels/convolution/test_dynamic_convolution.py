"""Dynamic convolution: its chunks, defaults and invalid arguments. `test_convolutions.py` has the rest."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from kernels.convolution.dynamic_convolution import (
    CHUNK,
    OPERATION,
    chunks,
    dynamic_convolution,
    dynamic_convolution_reference,
)
from kernels.dispatch.registry import Choice


@pytest.mark.parametrize(("length", "taps"), [(2 * CHUNK, 3), (CHUNK + 1, 1), (2 * CHUNK + 3, 40)])
def test_chunks_of_any_length_give_the_same(length, taps):
    torch.default_generator.manual_seed(0)
    x = torch.randn(2, length + taps - 1, 6, dtype=torch.float64)
    each = torch.randn(2, length, 3, taps, dtype=torch.float64)
    expected = dynamic_convolution_reference(x, each)
    for positions in (8, CHUNK, 128):
        found = dynamic_convolution(x, each, config=Choice.of("banded", {"positions": positions}))
        torch.testing.assert_close(found, expected, atol=1e-12, rtol=1e-12)


def test_chunks_cover_the_length_and_no_whole_chunk_more():
    for length in (1, CHUNK - 1, CHUNK, CHUNK + 1, 10 * CHUNK + 3):
        number, positions = chunks(length)
        assert length <= number * positions < length + positions


@pytest.mark.parametrize(("device", "expected"), [("cpu", "taps"), ("cuda", "banded")])
def test_serves_what_is_fast_there_before_it_is_tuned(device, expected):
    problem = OPERATION.problem(device, "float32", (2, 64, 8, 2, 7), (True,))
    assert OPERATION.default_choice(problem).implementation == expected


def test_passes_over_the_taps_are_counted_once():
    x, each = torch.randn(2, 12, 6, requires_grad=True), torch.randn(2, 9, 3, 4)
    with FlopCounterMode(display=False) as counter:
        out = dynamic_convolution(x, each)
        forward = counter.get_total_flops()
        out.sum().backward()
    assert forward == 2 * 2 * 9 * 6 * 4
    assert counter.get_total_flops() == 2 * forward  # the taps do not learn here


def test_says_what_does_not_fit():
    with pytest.raises(ValueError, match=r"x must be \[1, 6, a multiple of 2\] for taps .* but it is \[1, 7, 4\]"):
        dynamic_convolution(torch.zeros(1, 7, 4), torch.zeros(1, 4, 2, 3))
    with pytest.raises(ValueError, match=r"a multiple of 3\] .* but it is \[1, 6, 4\]"):
        dynamic_convolution(torch.zeros(1, 6, 4), torch.zeros(1, 4, 3, 3))
