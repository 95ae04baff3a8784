"""Every operation on rows: each implementation, at every corner of its space, equals the definition."""

from functools import partial

import pytest
import torch

from kernels.dispatch.registry import operation

SIZES = {
    "rms_norm": ((5, 33), {}),
    "layer_norm": ((5, 33), {"residual": True}),
    "softmax": ((5, 33), {}),
    "gated_activation": ((5, 33), {"gate": "silu"}),
    "rotary": ((2, 3, 5, 10), {"layout": "halves"}),
    "cross_entropy": ((5, 1030), {}),
    "linear_cross_entropy": ((5, 3, 12), {"bias": True}),
}
NAMES = tuple(SIZES)
HALF = (torch.bfloat16, torch.float16)


def problem_of(name, dtype="float64", gradients=True, sizes=None):
    known, flags = SIZES[name]
    found = operation(name)
    flags = tuple({"gradients": gradients, **flags}[flag] for flag in found.flags)
    return found.problem("cpu", dtype, sizes or known, flags)


def corners(implementation):
    """Configurations in which every two parameters meet, each with its first and its last value."""
    least, most = ({key: values[place] for key, values in implementation.parameters.items()} for place in (0, -1))
    return [least, most, *({**least, key: value} for key, value in most.items())]


def tensors(args, kwargs):
    return [x for x in (*args, *kwargs.values()) if isinstance(x, torch.Tensor) and x.requires_grad]


def results(call, args, kwargs):
    """Outputs, and gradients of a weighted sum of them that is the same for every implementation."""
    out = call(*args, **kwargs)
    outs = out if isinstance(out, tuple) else (out,)
    generator = torch.Generator().manual_seed(1)
    total = sum((y.double() * torch.randn(y.shape, generator=generator, dtype=torch.float64)).sum() for y in outs)
    return [*outs, *torch.autograd.grad(total, tensors(args, kwargs))]


def assert_near(found, expected, dtype):
    """Half precision is computed in float32 and rounded at the end; elsewhere errors add up over a row."""
    share = (8 if dtype in HALF else 256) * torch.finfo(dtype).eps
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        bound = share * max(1.0, other.abs().max().item() if other.numel() else 0.0)
        torch.testing.assert_close(one.double(), other.double(), atol=bound, rtol=0)


@pytest.mark.parametrize("implementation", ["torch", "blocked", "chunked", "triton"])
@pytest.mark.parametrize("name", NAMES)
def test_every_corner_is_the_definition(name, implementation):
    found = operation(name)
    if implementation not in found.implementations:
        pytest.skip(f"{name} has no {implementation}")
    args, kwargs = found.inputs(problem_of(name), 0)
    expected = results(found.reference, args, kwargs)
    each = found.implementations[implementation]
    for configuration in corners(each):
        assert_near(results(partial(each.call, **configuration), args, kwargs), expected, torch.float64)


ROWS, STRIDE = 3, 2**30


@pytest.mark.parametrize("name", ["cross_entropy", "gated_activation", "layer_norm", "rms_norm", "rotary", "softmax"])
def test_offsets_beyond_two_to_the_31_are_reached(name):
    """Rows so far apart that a 32-bit offset would overflow; the memory between them is never used."""
    found = operation(name)
    each, sizes = found.implementations["triton"], (1, 1, ROWS, 8) if name == "rotary" else (ROWS, 8)
    args, kwargs = found.inputs(problem_of(name, "float16", sizes=sizes), 0)
    near = args[0].detach()
    strides = (1, 1, STRIDE, 1) if name == "rotary" else (STRIDE, 1)
    memory = torch.empty((ROWS - 1) * STRIDE + near.shape[-1], dtype=torch.float16)
    far = memory.as_strided(near.shape, strides)
    far.copy_(near)
    got = results(partial(each.call, **each.default), (far.requires_grad_(), *args[1:]), kwargs)
    expected = results(partial(each.call, **each.default), (near.clone().requires_grad_(), *args[1:]), kwargs)
    torch.testing.assert_close(got, expected)
