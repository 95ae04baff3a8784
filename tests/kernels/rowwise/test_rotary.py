"""Rotary positions: rotations of complex numbers, their invariants, and heads in any layout."""

import pytest
import torch

from kernels.rowwise.rotary import LAYOUTS, OPERATION, rotary, rotary_reference

RUNNING = [name for name in OPERATION.implementations if name != "compiled"]


def of(implementation, *args, **configuration):
    each = OPERATION.implementations[implementation]
    return each.call(*args, **{**each.default, **configuration})


def plain(x, positions, base, layout):
    """Each pair as a complex number, one at a time."""
    out, D = torch.empty_like(x), x.shape[3]
    for t, position in enumerate(positions.tolist()):
        for m in range(D // 2):
            one, other = (m, m + D // 2) if layout == "halves" else (2 * m, 2 * m + 1)
            angle = torch.tensor(position * base ** (-2 * m / D), dtype=torch.float64)
            turn = torch.polar(torch.ones_like(angle), angle)
            turned = torch.complex(x[:, :, t, one], x[:, :, t, other]) * turn
            out[:, :, t, one], out[:, :, t, other] = turned.real, turned.imag
    return out


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(1, 1, 1, 2), (2, 3, 7, 6), (1, 2, 5, 16)], ids=str)
@pytest.mark.parametrize("implementation", RUNNING)
def test_equals_turns_of_complex_numbers(implementation, shape, layout):
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    positions, factors = torch.arange(shape[2]) * 3 + 5, torch.randn(shape, dtype=torch.float64)
    y, expected = of(implementation, x, positions, 500.0, layout), plain(x.detach(), positions, 500.0, layout)
    torch.testing.assert_close(y, expected, atol=1e-12, rtol=1e-12)
    (gradient,) = torch.autograd.grad((y * factors).sum(), x)
    back = plain(factors, -positions, 500.0, layout)  # the transpose of a rotation is its inverse
    torch.testing.assert_close(gradient, back, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_definition_is_that_of_complex_numbers(layout):
    x, positions = torch.randn(2, 2, 4, 6, dtype=torch.float64), torch.tensor([0, 9, 2, 100])
    torch.testing.assert_close(rotary_reference(x, positions, 10000.0, layout), plain(x, positions, 10000.0, layout))


@pytest.mark.parametrize("implementation", RUNNING)
def test_scores_depend_on_distances_alone(implementation):
    q, k = torch.randn(2, 1, 2, 3, 8, dtype=torch.float64).unbind(0)
    scores = [
        of(implementation, q, positions) @ of(implementation, k, positions).transpose(2, 3)
        for positions in (torch.arange(3), torch.arange(3) + 1000)
    ]
    torch.testing.assert_close(*scores)


VIEWS = {
    "of a projection": lambda x: x.transpose(1, 2),
    "channels apart": lambda x: x.transpose(2, 3),
    "part of the channels": lambda x: x[..., 2:6],
    "one head for all": lambda x: x[:, :1].expand(-1, 3, -1, -1),
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
@pytest.mark.parametrize("rows", [2, 64])
def test_reads_heads_in_any_layout(view, rows):
    x = view(torch.randn(2, 4, 6, 8, dtype=torch.float64))
    positions = torch.arange(x.shape[2])
    expected = rotary_reference(x, positions)
    torch.testing.assert_close(of("triton", x, positions, rows=rows), expected)
    torch.testing.assert_close(of("blocked", x, positions, rows=rows), expected)


def test_the_arguments_are_checked():
    with pytest.raises(ValueError, match="width must be even, but it is 3"):
        rotary(torch.ones(1, 1, 2, 3), torch.arange(2))
    with pytest.raises(ValueError, match="layout must be one of halves, interleaved, but got 'llama'"):
        rotary(torch.ones(1, 1, 2, 4), torch.arange(2), layout="llama")
