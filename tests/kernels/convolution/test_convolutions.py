"""Every convolution over time at every corner of its space, at unusual sizes, and with higher derivatives.

What holds for all operations is in `test_operations.py`.
"""

from functools import partial

import pytest
import torch

from kernels.dispatch.registry import Choice, operation

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


@each_once
def test_every_corner_is_the_definition(name, implementation):
    args, _ = operation(name).inputs(problem_of(name), 0)
    expected = results(operation(name).reference, args)
    parameters = operation(name).implementations[implementation].parameters
    least, most = ({key: values[place] for key, values in parameters.items()} for place in (0, -1))
    # Every two parameters meet with each of their two ends.
    corners = [least, most, *({**least, key: value} for key, value in most.items())]
    for values in {tuple(corner.items()): corner for corner in corners}.values():
        assert_near(results(configured(name, implementation, **values), args), expected, torch.float64)


@pytest.mark.parametrize("unusual", UNUSUAL)
@every
def test_unusual_sizes_are_no_exception(name, implementation, unusual):
    args, _ = operation(name).inputs(problem_of(name, **UNUSUAL[unusual]), 0)
    expected = results(operation(name).reference, args)
    assert_near(results(configured(name, implementation), args), expected, torch.float64)


@every
def test_any_layout_is_read(name, implementation):
    """A slice of a longer sequence, channels first in memory, and an expanded gradient."""
    args, _ = operation(name).inputs(problem_of(name), 0)

    def gradients(call, whole, weights):
        out = call(whole.transpose(1, 2)[:, 2:-1], weights.transpose(0, 1))
        return [out, *torch.autograd.grad(out, (whole, weights), torch.ones((), dtype=out.dtype).expand_as(out))]

    whole = torch.nn.functional.pad(args[0].detach(), (0, 0, 2, 1)).transpose(1, 2).contiguous().requires_grad_()
    weights = args[1].detach().transpose(0, 1).contiguous().requires_grad_()
    expected = gradients(operation(name).reference, whole, weights)
    assert_near(gradients(configured(name, implementation), whole, weights), expected, torch.float64)


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


@pytest.mark.parametrize(("name", "implementation"), [case for case in own() if case[1] in OPERATORS])
def test_the_gradients_are_operators_by_the_rules_of_torch(name, implementation):
    sizes = {"positions": 2, "channels": 4, "taps": 2}
    (x, weights), _ = operation(name).inputs(problem_of(name, "float32", **sizes), 0)
    tiles = list(operation(name).implementations[implementation].default.values())
    dy = torch.randn(2, 2, 4, requires_grad=True)
    backward = getattr(torch.ops.tessera, f"{name}_backward").default
    torch.library.opcheck(backward, (dy, x, weights, implementation, tiles, [True, True]))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_what_nobody_tuned_can_run(name, device):
    found = operation(name)
    sizes = [{}, {"taps": 1}, {"channels": 2}, {"channels": 4096, "taps": 500}, {"batch": 10**5, "positions": 10**6}]
    problems = [
        problem_of(name, "bfloat16", gradients, device, **each) for each in sizes for gradients in (False, True)
    ]
    for problem in (*found.problems(device).values(), *problems):
        for each in found.implementations.values():
            if each.refuses(problem) is None:
                found.check(Choice.of(each.name, each.default_for(problem)), problem)
        found.check(found.default_choice(problem), problem)


@pytest.mark.parametrize("name", NAMES)
def test_offsets_beyond_two_to_the_31_are_reached(name):
    """Positions so far apart that a 32-bit offset would overflow; the memory between them is never used."""
    (x, weights), _ = operation(name).inputs(problem_of(name, "float16", batch=1, positions=2, taps=2), 0)
    step, near = 2**30, x.detach()
    far = torch.empty(2 * step + 6, dtype=torch.float16).as_strided(near.shape, (1, step, 1))
    far.copy_(near)
    call = configured(name, "triton")
    found = results(call, (far.requires_grad_(), weights))
    torch.testing.assert_close(found, results(call, (near.clone().requires_grad_(), weights)))
