"""RMSNorm equals PyTorch's own, in unusual layouts."""

import pytest
import torch
from torch.nn import functional as F

from kernels.dispatch.registry import Choice
from kernels.rowwise.rms_norm import OPERATION

FUSED = [name for name in OPERATION.implementations if name not in ("torch", "compiled")]


def both(x, weight, implementation, **configuration):
    """(y, gradients) of an implementation and of PyTorch's own."""
    inputs = [tensor for tensor in (x, weight) if tensor is not None]
    factors = torch.randn(x.shape, dtype=x.dtype)
    each = OPERATION.implementations[implementation]
    found = each.call(x, weight, 1e-6, **{**each.default, **configuration})
    expected = F.rms_norm(x, x.shape[-1:], weight, 1e-6)
    return [(y, *torch.autograd.grad((y * factors).sum(), inputs)) for y in (found, expected)]


@pytest.mark.parametrize("gain", [True, False])
@pytest.mark.parametrize("shape", [(1, 1), (7,), (2, 3, 17), (3, 64)], ids=str)
@pytest.mark.parametrize("implementation", [*FUSED, "torch"])
def test_equals_pytorch(implementation, shape, gain):
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(shape[-1], dtype=torch.float64, requires_grad=True) if gain else None
    torch.testing.assert_close(*both(x, weight, implementation), atol=1e-12, rtol=1e-12)


LAYOUTS = {
    "rows apart": lambda x: x[:, :, :9],
    "transposed": lambda x: x.transpose(0, 1),
    "channels apart": lambda x: x.transpose(1, 2),
    "every other channel": lambda x: x[..., ::2],
    "one row for all": lambda x: x[:1, :1].expand(3, 4, -1),
}


@pytest.mark.parametrize(("rows", "programs"), [(1, 2), (2, 3), (16, 1), (4, 100)])
def test_programs_share_the_rows_for_the_gradient_of_the_gain(rows, programs):
    x = torch.randn(13, 5, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(5, dtype=torch.float64, requires_grad=True)
    found, expected = both(x, weight, "triton", rows=rows, programs=programs)
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("implementation", FUSED)
def test_statistics_of_half_precision_are_those_of_float32(implementation):
    x = torch.full((2, 4096), 300.0, dtype=torch.float16)  # the sum of squares overflows float16
    each = OPERATION.implementations[implementation]
    assert torch.equal(each.call(x, None, 1e-6, **each.default), torch.ones_like(x))


def test_a_row_too_wide_for_a_program_is_left_to_others():
    wide = OPERATION.problem("cuda", "bfloat16", (4, 2**17), (True,))
    assert OPERATION.implementations["triton"].refuses(wide) == "a program holds at most 65536 columns"
    assert OPERATION.default_choice(wide) == Choice.of("torch")
