"""Kernels that go over wide rows in steps give what the definition gives, and which steps are tried for a problem."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.dispatch.registry import Choice, operation
from kernels.rowwise import rows, steps
from kernels.rowwise.rows_triton import warps_of_whole_rows

NAMES = ("softmax", "rms_norm", "layer_norm")
FLAGS = {"softmax": (), "rms_norm": (), "layer_norm": (False,)}


def in_steps(name, step, *args, **kwargs):
    each = operation(name).implementations["triton"]
    return each.call(*args, **kwargs, **{**each.default, "step": step})


def problem(name, columns, gradients=False):
    return operation(name).problem("cuda", "bfloat16", (64, columns), (gradients, *FLAGS[name]))


def legal(name, columns, gradients=False):
    """All configurations that are tried for rows with this number of columns."""
    each = operation(name).implementations["triton"]
    combinations = (dict(zip(each.parameters, values)) for values in itertools.product(*each.parameters.values()))
    return [
        one for one in combinations if all(fits(one, problem(name, columns, gradients)) for fits in each.constraints)
    ]


def arguments(name, x, parameters, residual):
    """The arguments of a call: x, gain and bias, residual, as far as the operation has them."""
    if name == "softmax":
        return (x,), {}
    gain, bias = torch.randn(2, x.shape[-1], dtype=x.dtype) if parameters else (None, None)
    args = (x, gain) if name == "rms_norm" else (x, gain, bias)
    added = {"residual": torch.randn(x.shape, dtype=x.dtype)} if name == "layer_norm" and residual else {}
    return tuple(each if each is None else each.requires_grad_() for each in args), added


def outputs_and_gradients(call, args, kwargs):
    out = call(*args, **kwargs)
    outs = out if isinstance(out, tuple) else (out,)
    total = sum((y * torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view(y.shape)).sum() for y in outs)
    return *outs, *torch.autograd.grad(total, [each for each in args if each is not None])


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=12)
@given(
    columns=st.integers(17, 70),
    step=st.sampled_from([16, 32]),
    apart=st.integers(0, 3),
    mean=st.sampled_from([0.0, -1e3, 1e5]),
    parameters=st.booleans(),
    residual=st.booleans(),
)
def test_steps_give_what_the_definition_gives(name, columns, step, apart, mean, parameters, residual):
    """Rows may be apart in memory, and the last step is seldom full."""
    torch.default_generator.manual_seed(columns)
    x = (torch.randn(2, columns + apart, dtype=torch.float64) + mean)[:, :columns].requires_grad_()
    args, kwargs = arguments(name, x, parameters, residual)
    found = outputs_and_gradients(lambda *args, **kwargs: in_steps(name, step, *args, **kwargs), args, kwargs)
    expected = outputs_and_gradients(operation(name).reference, args, kwargs)
    torch.testing.assert_close(found, expected, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_a_step_of_at_least_a_row_is_the_whole_row(name):
    x = torch.randn(3, 33)
    assert torch.equal(in_steps(name, 64, x), in_steps(name, 0, x))


@pytest.mark.parametrize("mean", [1e2, 1e4, 1e6])
def test_a_large_mean_costs_no_more_precision_than_in_whole_rows(mean):
    x = torch.randn(4, 1000) + mean
    exact = torch.nn.functional.layer_norm(x.double(), (1000,))
    stepped, whole = ((in_steps("layer_norm", step, x) - exact).abs().max() for step in (64, 0))
    assert stepped <= 2 * whole + 1e-6


def test_the_sum_is_that_of_pytorch_and_its_norm_reads_the_rounded_one():
    x, residual = torch.randn(3, 40).half(), torch.randn(3, 40).half()
    y, total = in_steps("layer_norm", 16, x, residual=residual)
    assert torch.equal(total, x + residual)
    expected = torch.nn.functional.layer_norm((x + residual).double(), (40,))
    torch.testing.assert_close(y.double(), expected, atol=1e-6, rtol=torch.finfo(torch.float16).eps)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of the interpreter
@pytest.mark.parametrize("place", [0, 7, 16, 39])
@pytest.mark.parametrize("value", [2.0, 1e38, -torch.inf, torch.inf, torch.nan])
def test_a_softmax_in_steps_treats_infinities_like_pytorch(place, value):
    """Rows of -inf but for one number, and rows with one such number."""
    x = torch.stack([torch.full((40,), -torch.inf), torch.linspace(-3, 3, 40)])
    x[:, place] = value
    torch.testing.assert_close(in_steps("softmax", 16, x), x.softmax(-1), equal_nan=True)


@pytest.mark.parametrize("name", NAMES)
def test_rows_wider_than_a_program_can_hold(name):
    columns = rows.WIDEST + 4000
    configuration = operation(name).implementations["triton"].default_for(problem(name, columns))
    operation(name).check(Choice.of("triton", configuration), problem(name, columns))
    x = torch.randn(1, columns)
    found = operation(name).implementations["triton"].call(x, **configuration)
    torch.testing.assert_close(found, operation(name).reference(x))


@pytest.mark.parametrize("name", NAMES)
def test_steps_are_tried_for_wide_rows_only(name):
    assert {each["step"] for each in legal(name, 2048)} == {0}
    assert {each["step"] for each in legal(name, 4096)} == {0, 1024, 2048}
    assert {each["step"] for each in legal(name, 32768)} == set(steps.TILES["step"])
    for columns in (4096, 8192, 32768):
        found = legal(name, columns)
        assert all(each["rows"] == 1 for each in found if each["step"])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("columns", [1, 100, 4096, 8192, 8193, 16384, 32768, 65536, 65537])
def test_the_configuration_for_a_width_is_legal(name, columns):
    for gradients in (False, True):
        chosen = operation(name).implementations["triton"].default_for(problem(name, columns, gradients))
        assert chosen in legal(name, columns, gradients)
        assert bool(chosen["step"]) == (columns > (16_384 if name == "softmax" else rows.WIDEST))


def test_a_backward_pass_over_whole_rows_has_the_warps_for_them():
    assert warps_of_whole_rows(0, 32768, 8) == 8
    assert warps_of_whole_rows(4096, 4096, 8) == 8
    assert warps_of_whole_rows(4096, 8192, 8) == 16
    assert warps_of_whole_rows(4096, 32768, 8) == 32


@pytest.mark.parametrize("name", ["rms_norm", "layer_norm"])
def test_the_gradient_of_a_norm_needs_rows_that_fit_a_program(name):
    each = operation(name).implementations["triton"]
    assert each.refuses(problem(name, 2 * rows.WIDEST, gradients=True)) == "a program holds at most 65536 columns"
    assert each.refuses(problem(name, 2 * rows.WIDEST)) is None
