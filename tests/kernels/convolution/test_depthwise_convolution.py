"""Depthwise convolution: defaults and invalid arguments. `test_convolutions.py` has the rest."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from kernels.convolution.depthwise_convolution import (
    FEW,
    OPERATION,
    depthwise_convolution,
    depthwise_convolution_reference,
)
from kernels.dispatch.registry import Choice


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("taps", [1, FEW, FEW + 1, 15])
def test_few_and_many_taps_agree_with_the_definition(taps, dtype):
    torch.default_generator.manual_seed(0)
    whole = torch.randn(2, taps + 42, 5, dtype=dtype, requires_grad=True)
    x, weight = (
        whole[:, 3:],
        torch.randn(5, taps, dtype=dtype, requires_grad=True),
    )  # what a branch with fewer taps reads
    found, expected = depthwise_convolution(x, weight), depthwise_convolution_reference(x, weight)
    assert found.shape == (2, 40, 5)
    # Sums of 15 and of 80 products; torch rounds a result to half precision once more than the definition.
    torch.testing.assert_close(found, expected, atol=8 * torch.finfo(dtype).eps, rtol=8 * torch.finfo(dtype).eps)
    scale = torch.randn_like(found)
    gradients = [torch.autograd.grad((out * scale).sum(), (whole, weight)) for out in (found, expected)]
    bound = 64 * torch.finfo(dtype).eps
    torch.testing.assert_close(gradients[0], gradients[1], atol=bound, rtol=bound)


@pytest.mark.parametrize(
    ("device", "dtype", "taps", "gradients", "expected"),
    [
        ("cpu", "float32", FEW, True, "conv2d"),
        ("cpu", "float32", FEW + 1, True, "image"),
        ("cpu", "bfloat16", FEW + 1, True, "taps"),
        ("cpu", "float32", FEW + 1, False, "conv2d"),
        ("cpu", "float64", 3, True, "taps"),
        ("cuda", "bfloat16", 9, True, "conv1d"),
    ],
)
def test_serves_what_is_fast_there_before_it_is_tuned(device, dtype, taps, gradients, expected):
    problem = OPERATION.problem(device, dtype, (2, 64, 8, taps), (gradients,))
    assert OPERATION.default_choice(problem).implementation == expected


@pytest.mark.parametrize("implementation", ["conv2d", "image", "taps"])
def test_every_implementation_counts_the_same_flops(implementation):
    x, weight = torch.randn(2, 12, 6), torch.randn(6, 4)
    with FlopCounterMode(display=False) as counter:
        depthwise_convolution(x, weight, config=Choice.of(implementation))
    assert counter.get_total_flops() == 2 * 2 * 9 * 6 * 4


def test_refuses_a_picture_that_might_never_be_done():
    few, many = (OPERATION.problem("cpu", "bfloat16", (2, 64, C, 15), (True,)) for C in (16, 32))
    assert {"conv2d", "image"} <= set(OPERATION.choices(many)) - set(OPERATION.choices(few))


def test_says_what_does_not_fit():
    with pytest.raises(ValueError, match="a row of taps for each of the 6 channels of x, but it has 3"):
        depthwise_convolution(torch.zeros(1, 9, 6), torch.zeros(3, 2))
    with pytest.raises(ValueError, match="x must hold 4 neighbours of a position, but has length 3"):
        depthwise_convolution(torch.zeros(1, 3, 6), torch.zeros(6, 5))
    with pytest.raises(ValueError, match="breaks a constraint of triton"):
        problem = OPERATION.problem("cuda", "bfloat16", (8, 64, 64, 4), (False,))
        OPERATION.check(Choice.of("triton", {"programs": 16}), problem)  # for gradients that are not needed
