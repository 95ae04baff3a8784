"""The fused map and loss equal PyTorch's two operators, in chunks, and the logits are never all in memory."""

import pytest
import torch
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from kernels.rowwise import rows as by_rows
from kernels.rowwise.linear_cross_entropy import BLOCKS, OPERATION, _forward, linear_cross_entropy

ROWS, WIDTH, CLASSES, IGNORE = 13, 5, 11, -1


def of(implementation, *args, **configuration):
    each = OPERATION.implementations[implementation]
    return each.call(*args, **{**each.default, **configuration})


def random_inputs(bias):
    torch.default_generator.manual_seed(0)
    shapes = ((1, ROWS, WIDTH), (CLASSES, WIDTH), *([(CLASSES,)] if bias else []))
    x, weight, *rest = (torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes)
    targets = torch.randint(CLASSES, (1, ROWS))
    targets[0, 3] = IGNORE
    return x, weight, targets, rest[0] if bias else None


def with_gradients(loss, inputs):
    return loss, *torch.autograd.grad(3 * loss, [each for each in inputs if each is not None])


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("rows", [1, 4, 64])
@pytest.mark.parametrize("in_forward", [True, False])
def test_equals_a_map_and_its_loss(in_forward, rows, bias, smoothing, reduction):
    x, weight, targets, b = random_inputs(bias)
    options = (IGNORE, smoothing, reduction)
    found = of("chunked", x, weight, targets, b, *options, rows=rows, in_forward=in_forward)
    expected = F.cross_entropy(
        F.linear(x, weight, b)[0], targets[0], ignore_index=IGNORE, label_smoothing=smoothing, reduction=reduction
    )
    results = (with_gradients(loss, (x, weight, b)) for loss in (found, expected))
    torch.testing.assert_close(*results, atol=1e-11, rtol=1e-11)


@pytest.mark.parametrize("in_forward", [True, False])
def test_triton_takes_chunks_too(in_forward):
    x, weight, targets, b = random_inputs(True)
    options = (IGNORE, 0.1, "mean")
    found = of("triton", x, weight, targets, b, *options, rows=5, in_forward=in_forward, block=1024)
    expected = of("torch", x, weight, targets, b, *options)
    results = (with_gradients(loss, (x, weight, b)) for loss in (found, expected))
    torch.testing.assert_close(*results, atol=1e-11, rtol=1e-11)


class Largest(TorchDispatchMode):
    """The largest number of elements of a tensor whose last axis is that of the classes."""

    def __init__(self):
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        for each in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(each, torch.Tensor) and each.shape[1:] == (CLASSES,) and len(each) != WIDTH:  # no weight
                self.numbers = max(self.numbers, each.numel())
        return out


@pytest.mark.parametrize("in_forward", [True, False])
def test_the_logits_of_one_chunk_alone_stand_in_memory(in_forward):
    """Calls the code of the operators directly, because a mode cannot see into an operator."""
    x, weight, targets, _ = random_inputs(False)
    settings = (IGNORE, 0.0, True, in_forward, 4, "blocked", 2, 0)
    with Largest() as seen, torch.no_grad():
        _forward._init_fn(x[0], weight, None, targets[0], *settings)
    assert seen.numbers == 4 * CLASSES


def test_no_gradient_is_made_where_none_is_asked_for():
    x, weight, targets, _ = random_inputs(False)
    with torch.no_grad():
        loss = linear_cross_entropy(x, weight, targets, ignore_index=IGNORE)
    assert not loss.requires_grad
    fixed = linear_cross_entropy(x, weight.detach(), targets, ignore_index=IGNORE)
    expected = F.cross_entropy(F.linear(x, weight)[0], targets[0], ignore_index=IGNORE)
    torch.testing.assert_close(torch.autograd.grad(fixed, x), torch.autograd.grad(expected, x))


@pytest.mark.parametrize("in_forward", [True, False])
def test_mixed_precision_multiplies_in_the_narrow_dtype(in_forward):
    x, weight, targets, _ = random_inputs(False)
    x, weight = (each.detach().float().requires_grad_() for each in (x, weight))
    with torch.autocast("cpu", torch.bfloat16):
        loss = of("chunked", x, weight, targets, None, IGNORE, in_forward=in_forward)
    assert loss.dtype == torch.float32
    expected = F.cross_entropy(F.linear(x, weight)[0], targets[0], ignore_index=IGNORE)
    bound = 8 * torch.finfo(torch.bfloat16).eps
    torch.testing.assert_close(loss, expected, atol=0, rtol=bound)
    for found, wanted in zip(torch.autograd.grad(loss, (x, weight)), torch.autograd.grad(expected, (x, weight))):
        assert found.dtype == torch.float32
        torch.testing.assert_close(found, wanted, atol=bound * wanted.abs().max().item(), rtol=0)


def test_chunks_are_the_default_where_logits_are_large():
    for rows, expected in ((2**10, "torch"), (2**10 + 1, "chunked")):
        problem = OPERATION.problem("cpu", "float32", (rows, 64, 2**10), (True, False))
        assert OPERATION.default_choice(problem).implementation == expected


def test_losses_cannot_be_had_one_by_one():
    x, weight, targets, _ = random_inputs(False)
    with pytest.raises(ValueError, match="reduction must be one of mean, sum, but got 'none'"):
        linear_cross_entropy(x, weight, targets, reduction="none")


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_without_tuning_blocks_fit_the_cache_of_a_cpu_and_are_large_on_a_gpu(device):
    for problem in OPERATION.problems(device).values():
        block = OPERATION.implementations["chunked"].default_for(problem)["block"]
        assert block == max(BLOCKS) if device == "cuda" else block * problem["classes"] <= by_rows.CACHED
