"""Every convolution over time at every corner of its space, at unusual sizes, and with higher derivatives.

What holds for all operations is in `test_operations.py`.
"""

from functools import partial

import pytest
import torch

from kernels.dispatch.registry import operation

NAMES = ("depthwise_convolution", "dynamic_convolution", "lightweight_convolution")
SIZES = {"batch": 2, "positions": 9, "channels": 6, "heads": 2, "taps": 4}
UNUSUAL = {
    "one tap": {"taps": 1},
    "one position": {"positions": 1},
    "more taps than positions": {"positions": 3, "taps": 9},
    "more taps than a program sums": {"positions": 5, "taps": 18},
    "a head a channel": {"heads": 6},
    "one channel": {"channels": 1, "heads": 1},
    "no sequence": {"batch": 0},
    "no position": {"positions": 0},
    "no channel": {"channels": 0},
}
OPERATORS = ("image", "taps", "triton")


def cases():
    """(operation, implementation) of all implementations without a compiler."""
    for name in NAMES:
        yield from ((name, each) for each in operation(name).implementations if each != "compiled")


def own():
    """The `cases` that no other operation shares."""
    shared = operation("depthwise_convolution").implementations
    return [(name, each) for name, each in cases() if name != "lightweight_convolution" or each not in shared]


# Lightweight convolution hands its normalised taps to implementations of depthwise convolution: one of those is enough.
every = pytest.mark.parametrize(("name", "implementation"), [*own(), ("lightweight_convolution", "conv1d")])
each_once = pytest.mark.parametrize(("name", "implementation"), own())


def problem_of(name, dtype="float64", gradients=True, device="cpu", **sizes):
    found, known = operation(name), SIZES | sizes
    return found.problem(device, dtype, tuple(known[size] for size in found.sizes), (gradients,))


def configured(name, implementation, **configuration):
    each = operation(name).implementations[implementation]
    return partial(each.call, **{**each.default, **configuration})


def results(call, args):
    """The output, and gradients of a weighted sum of it that is the same for every implementation."""
    out = call(*args)
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return [out, *torch.autograd.grad((out.double() * weights).sum(), args)]


def assert_near(found, expected, dtype):
    """Errors add up over taps and positions."""
    share = 64 * torch.finfo(dtype).eps
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        bound = share * max(1.0, other.abs().max().item() if other.numel() else 0.0)
        torch.testing.assert_close(one.double(), other.double(), atol=bound, rtol=0)


@pytest.mark.parametrize("unusual", UNUSUAL)
@every
def test_unusual_sizes_are_no_exception(name, implementation, unusual):
    args, _ = operation(name).inputs(problem_of(name, **UNUSUAL[unusual]), 0)
    expected = results(operation(name).reference, args)
    assert_near(results(configured(name, implementation), args), expected, torch.float64)


@every
def test_only_what_learns_gets_a_gradient(name, implementation):
    (x, weights), _ = operation(name).inputs(problem_of(name), 0)
    call = configured(name, implementation)
    both = results(call, (x, weights))
    (dx,) = results(lambda x: call(x, weights.detach()), (x,))[1:]
    (dw,) = results(lambda weights: call(x.detach(), weights), (weights,))[1:]
    torch.testing.assert_close([dx, dw], both[1:])


@each_once
def test_second_derivatives_are_right_too(name, implementation):
    sizes = {"batch": 1, "positions": 3, "channels": 2, "heads": 1, "taps": 2}
    args, _ = operation(name).inputs(problem_of(name, **sizes), 0)
    assert torch.autograd.gradgradcheck(configured(name, implementation), args, fast_mode=True)
