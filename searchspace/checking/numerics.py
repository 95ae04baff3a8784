"""bfloat16 and mixed precision."""

from __future__ import annotations

import copy

import torch

from searchspace.checking.cases import B, Case, again, context, drawn
from searchspace.checking.contract import Check, ensure, once

BITS = 8 * 2**-8  # 8 bits of mantissa, and a handful of roundings one after the other


def bfloat16_is_near_float64(case: Case) -> None:
    block, choices = case.built(torch.bfloat16), case.choices()
    x = drawn(131, torch.bfloat16)
    y = block(x, context(x, choices=choices))
    wide, memory = copy.deepcopy(block).double(), context(x).read("memory").double()
    expected = wide(x.double(), context(x, choices=again(choices), memory=memory))
    ensure(y.dtype == torch.bfloat16, f"the output of bfloat16 is {y.dtype}")
    _near(y.double() - expected, expected)


def trains_in_mixed_precision(case: Case) -> None:
    block, x = case.built(torch.float32), drawn(70, torch.float32).requires_grad_()
    padding, choices = torch.rand(B, 70) < 0.8, case.choices()
    expected = block(x, context(x, padding=padding, choices=choices))
    used = context(x, padding=padding, choices=again(choices))
    with torch.autocast("cpu", torch.bfloat16):
        y = block(x, used)
    _near((y - expected)[padding], expected)
    (y.float().square().mean() + used.loss()).backward()
    for value in (x, *block.parameters()):
        ensure(value.grad is not None and value.grad.isfinite().all(), "a gradient is missing or not finite")


def _near(error: torch.Tensor, expected: torch.Tensor) -> None:
    worst, most = error.abs().max(), BITS * expected.abs().max()
    ensure(worst <= most, f"the error is {worst:.3g}, more than {most:.3g}")


CHECKS = (
    Check(bfloat16_is_near_float64, once),
    Check(trains_in_mixed_precision, once),
)
