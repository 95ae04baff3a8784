"""A recurrent unit that attends in each step equals its definition."""

import pytest
import torch

from kernels.recurrence.attending_gru import attending_gru, attending_gru_reference
from searchspace.testing import count_flops
from tests.kernels.near import agree

ORDERS = pytest.mark.parametrize("fed", [False, True], ids=["reads_first", "reads_last"])


def _problem(fed, T=5, S=4, B=3, A=2, H=3, M=6):
    torch.default_generator.manual_seed(0)
    into = (3 * H, H if fed else M)
    shapes = [(T, B, 3 * H), (B, S, A), (B, S, M), (B, H), (B, H), (A, H), (A,), (3 * H, H), into]
    shapes += [(H, H + M)] if fed else []
    return [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]


def _options(inputs, masked):
    if not masked:
        return {}
    (T, B, _), S = inputs[0].shape, inputs[1].shape[1]
    real = torch.rand(B, S) < 0.6
    real[0] = False
    return {"real": real, "mask": torch.rand(T, B, 1) < 0.6}


@ORDERS
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("sizes", [{"T": 1, "S": 1, "B": 1, "A": 1, "H": 1, "M": 1}, {}, {"T": 7, "A": 5}], ids=str)
def test_equals_its_definition(fed, masked, sizes):
    inputs = _problem(fed, **sizes)
    options = _options(inputs, masked)
    found, expected = attending_gru(*inputs, **options), attending_gru_reference(*inputs, **options)
    outputs = 3 if fed else 2
    for used in (slice(outputs), *(slice(i, i + 1) for i in range(outputs))):  # the gradient of another one is None
        agree(found[used], expected[used], inputs, 1e-11)


@ORDERS
@pytest.mark.parametrize("masked", [False, True])
def test_the_unit_of_torch_and_a_bias_of_the_output_equal_the_definition(fed, masked):
    inputs = _problem(fed, H=4)
    options = _options(inputs, masked)
    options["bias"] = torch.randn(4, dtype=torch.float64, requires_grad=True)
    learned = [*inputs, options["bias"]]
    if fed:
        options["output_bias"] = torch.randn(4, dtype=torch.float64, requires_grad=True)
        learned.append(options["output_bias"])
    found, expected = attending_gru(*inputs, **options), attending_gru_reference(*inputs, **options)
    gradients = []
    for outs in (found, expected):
        read = outs[2].sin().sum() if fed else outs[1].sin().sum()
        gradients.append(torch.autograd.grad(outs[0].cos().sum() + read, learned, materialize_grads=True))
    torch.testing.assert_close(found[0], expected[0], atol=1e-12, rtol=1e-12)
    torch.testing.assert_close(gradients[0], gradients[1], atol=1e-10, rtol=1e-10)
    if masked == fed:  # with the two checks without biases below: every two of order, mask and bias meet
        rest = [None] * (10 - len(inputs))
        given = options.get("real"), options.get("mask"), options["bias"], options.get("output_bias")
        torch.library.opcheck(torch.ops.tessera.attending_gru.default, (*inputs, *rest, *given))


@ORDERS
def test_a_state_handed_over_is_the_state_of_the_whole(fed):
    inputs = _problem(fed)
    whole = attending_gru(*inputs)
    first = attending_gru(inputs[0][:2], *inputs[1:])
    second = attending_gru(inputs[0][2:], *inputs[1:3], first[0][-1], first[2][-1] if fed else inputs[4], *inputs[5:])
    for a, b, both in zip(first, second, whole, strict=True):
        torch.testing.assert_close(torch.cat([a, b]), both)


@ORDERS
def test_is_sound_as_an_operation_and_counts_the_products_of_its_definition(fed):
    inputs = _problem(fed)
    rest = [None] * (10 - len(inputs))
    options = _options(inputs, masked=not fed)
    given = options.get("real"), options.get("mask")
    torch.library.opcheck(torch.ops.tessera.attending_gru.default, (*inputs, *rest, *given))
    read = 2 if fed else 0
    found, expected = (
        count_flops(lambda: call(*inputs)[read])  # noqa: B023
        for call in (attending_gru, attending_gru_reference)
    )
    assert found == expected > (0, 0)
