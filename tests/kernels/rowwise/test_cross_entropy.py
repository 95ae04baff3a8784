"""Cross-entropy equals PyTorch's own: smoothing, ignored rows, reductions, and extreme logits."""

import pytest
import torch
from torch.nn import functional as F

from kernels.rowwise.cross_entropy import IGNORE, OPERATION, cross_entropy, cross_entropy_reference

FUSED = [name for name in OPERATION.implementations if name not in ("torch", "compiled")]


def of(implementation, *args, **configuration):
    each = OPERATION.implementations[implementation]
    return each.call(*args, **{**each.default, **configuration})


def both(implementation, logits, targets, smoothing, reduction, **configuration):
    """(loss, gradient) of an implementation and of PyTorch's own."""
    V = logits.shape[-1]
    losses = (
        of(implementation, logits, targets, IGNORE, smoothing, reduction, **configuration),
        F.cross_entropy(
            logits.reshape(-1, V), targets.reshape(-1), label_smoothing=smoothing, reduction=reduction
        ).reshape(targets.shape if reduction == "none" else ()),
    )
    factors = torch.randn_like(losses[1].detach())
    return [(loss, *torch.autograd.grad((loss * factors).sum(), logits)) for loss in losses]


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("implementation", FUSED)
def test_equals_pytorch(implementation, smoothing, reduction):
    logits = (4 * torch.randn(2, 3, 17, dtype=torch.float64)).requires_grad_()
    targets = torch.randint(17, (2, 3))
    targets[1, 0] = IGNORE
    found, expected = both(implementation, logits, targets, smoothing, reduction)
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize(("classes", "block"), [(1, 1024), (1024, 1024), (2500, 1024)])
def test_a_row_may_take_several_blocks(classes, block):
    logits = (4 * torch.randn(2, classes, dtype=torch.float64)).requires_grad_()
    found, expected = both("triton", logits, torch.tensor([0, classes - 1]), 0.1, "mean", block=block)
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("implementation", [*FUSED, "torch"])
def test_logits_may_be_extreme_or_ruled_out(implementation):
    logits = torch.tensor([[3e4, -3e4, 0.0], [-torch.inf, 1.0, 1.0], [-1e4, -1e4, -1e4]], requires_grad=True)
    loss = of(implementation, logits, torch.tensor([1, 2, 0]), IGNORE, 0.0, "none")
    torch.testing.assert_close(loss, torch.tensor([6e4, 2.0, 3.0]).log().index_fill(0, torch.tensor([0]), 6e4))
    (gradient,) = torch.autograd.grad(loss.sum(), logits)
    torch.testing.assert_close(gradient[:2], torch.tensor([[1.0, -1.0, 0.0], [0.0, 0.5, -0.5]]))


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # of NumPy, in Triton's interpreter
@pytest.mark.parametrize("implementation", [*FUSED, "torch"])
def test_an_ignored_row_counts_for_nothing_whatever_it_holds(implementation):
    logits = torch.tensor([[1.0, 2.0], [torch.inf, torch.nan]], requires_grad=True)
    loss = of(implementation, logits, torch.tensor([0, 7]), 7, 0.0, "mean")
    torch.testing.assert_close(loss, F.cross_entropy(logits[:1], torch.tensor([0])))
    (gradient,) = torch.autograd.grad(loss, logits)
    assert gradient[0].isfinite().all()
    assert implementation == "torch" or not gradient[1].any()  # PyTorch's own lets a NaN through


@pytest.mark.parametrize("implementation", FUSED)
def test_losses_of_half_precision_are_float32(implementation):
    logits = torch.randn(3, 50).half()
    loss = of(implementation, logits, torch.tensor([0, 1, 2]))
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, F.cross_entropy(logits.float(), torch.tensor([0, 1, 2])))


def test_the_mean_of_no_row_is_not_a_number():
    assert cross_entropy(torch.ones(2, 3), torch.full((2,), IGNORE)).isnan()
    assert cross_entropy_reference(torch.ones(2, 3), torch.full((2,), IGNORE)).isnan()


def test_a_class_that_is_none_is_no_number_in_triton():
    loss = of("triton", torch.randn(2, 5), torch.tensor([5, 1]), IGNORE, 0.0, "none")
    assert loss.isnan().tolist() == [True, False]


@pytest.mark.parametrize(
    ("targets", "options", "message"),
    [
        (torch.zeros(3, dtype=torch.int64), {}, r"a target for every row, \[2\], but got \[3\]"),
        (torch.zeros(2), {}, "class numbers in int64, but got torch.float32"),
        (torch.zeros(2, dtype=torch.int64), {"label_smoothing": 2}, "between 0 and 1, but got 2"),
        (torch.zeros(2, dtype=torch.int64), {"reduction": "max"}, "one of none, mean, sum, but got 'max'"),
    ],
    ids=["shape", "dtype", "smoothing", "reduction"],
)
def test_the_arguments_are_checked(targets, options, message):
    with pytest.raises(ValueError, match=message):
        cross_entropy(torch.ones(2, 4), targets, **options)
