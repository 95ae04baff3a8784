"""A linear map whose result is used twice: now, and later as a memory that passes no gradient back to the input.

Dai et al. 2019, "Transformer-XL", https://arxiv.org/abs/1901.02860, section 3.2. Gradients reach the map W that makes
keys and values, but not the states of the memory. y = x W^T is used twice: in its own segment, with gradients G, and as
memory of the next one, with gradients M. So dW = (G + M)^T x and dx = G W. Computing the map twice, once from x
detached, would cost half as much again.

If x is the result of a norm, the memory holds what was normed, and the norm learns from the memory too. `behind` is
then the norm of the detached memory: the same numbers as x, with another gradient, M W. x, behind: [..., I], W: [O, I],
y: [..., O].
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from kernels.dispatch.mode import is_plain


def remembered_linear_reference(x: Tensor, weight: Tensor, behind: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The definition; arguments and result as for `remembered_linear`."""
    return F.linear(x, weight), F.linear(x.detach() if behind is None else behind, weight)


class _RememberedLinear(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor, _behind: Tensor | None, weight: Tensor) -> tuple[Tensor, Tensor]:
        y = F.linear(x, weight)
        return y, y.clone()  # two outputs that are one tensor would share one gradient

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor | None, Tensor], output: tuple[Tensor, Tensor]) -> None:
        x, _, weight = inputs
        ctx.save_for_backward(x, weight)

    @staticmethod
    def backward(ctx: Any, present: Tensor, memory: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        needs_x, needs_behind, needs_weight = ctx.needs_input_grad
        both = (present + memory).flatten(0, -2)
        return (
            present @ weight if needs_x else None,
            memory @ weight if needs_behind else None,
            both.T @ x.flatten(0, -2) if needs_weight else None,
        )


def remembered_linear(x: Tensor, weight: Tensor, behind: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """(x W^T, the same without a gradient to x), both [..., O]; x: [..., I], weight: [O, I].

    behind: a tensor equal to x that gets the gradient of the second result; None for no gradient.
    """
    # A compiler finds the common product itself, and warns about autograd functions.
    if is_plain() or torch.compiler.is_compiling():
        return remembered_linear_reference(x, weight, behind)
    if torch.is_autocast_enabled(x.device.type):
        narrow = torch.get_autocast_dtype(x.device.type)
        x, weight, behind = x.to(narrow), weight.to(narrow), None if behind is None else behind.to(narrow)
    if not torch.is_grad_enabled():
        y = F.linear(x, weight)
        return y, y
    return _RememberedLinear.apply(x, behind, weight)
