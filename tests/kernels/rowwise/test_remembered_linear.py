"""The linear map that is used twice equals two maps."""

import pytest
import torch

from kernels.rowwise.remembered_linear import remembered_linear, remembered_linear_reference


@pytest.mark.parametrize("shape", [(3, 4), (2, 5, 4), (2, 0, 4)], ids=str)
@pytest.mark.parametrize("read", [(True, True), (True, False), (False, True)], ids=str)
def test_equals_its_definition(shape, read):
    torch.default_generator.manual_seed(0)
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(6, 4, dtype=torch.float64, requires_grad=True)
    factors = [torch.randn(*shape[:-1], 6, dtype=torch.float64) for _ in read]
    results = []
    for function in (remembered_linear, remembered_linear_reference):
        outs = function(x, weight)
        total = sum((out * factor).sum() for out, factor, used in zip(outs, factors, read, strict=True) if used)
        results.append((*outs, *torch.autograd.grad(total, (x, weight), materialize_grads=True)))
    torch.testing.assert_close(results[0], results[1], atol=1e-12, rtol=1e-12)


def test_a_memory_behind_a_norm_has_a_gradient_of_its_own():
    torch.default_generator.manual_seed(0)
    x = torch.randn(2, 5, 4, dtype=torch.float64, requires_grad=True)
    behind = x.detach().clone().requires_grad_()
    weight = torch.randn(6, 4, dtype=torch.float64, requires_grad=True)
    factors = torch.randn(2, 2, 5, 6, dtype=torch.float64)
    results = []
    for function in (remembered_linear, remembered_linear_reference):
        outs = function(x, weight, behind)
        total = (torch.stack(outs) * factors).sum()
        results.append((*outs, *torch.autograd.grad(total, (x, weight, behind))))
    torch.testing.assert_close(results[0], results[1], atol=1e-12, rtol=1e-12)


def test_computes_no_gradient_that_nobody_wants():
    x, weight = torch.randn(3, 4), torch.randn(6, 4, requires_grad=True)
    present, memory = remembered_linear(x, weight)
    (present + memory).sum().backward()
    torch.testing.assert_close(weight.grad, 2 * x.sum(0).expand(6, 4))
    with torch.no_grad():
        assert not any(y.requires_grad for y in remembered_linear(x, weight))


def test_works_in_mixed_precision():
    x, weight = torch.randn(3, 4, requires_grad=True), torch.randn(6, 4, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        present, memory = remembered_linear(x, weight)
    assert present.dtype == memory.dtype == torch.bfloat16
    (present + memory).float().sum().backward()
    assert (x.grad.dtype, weight.grad.dtype) == (torch.float32, torch.float32)
    torch.testing.assert_close(x.grad, weight.sum(0).expand(3, 4), atol=0.1, rtol=0.02)
