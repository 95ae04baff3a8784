"""A linear map whose result is read twice: now, and later as a memory, from which no gradient goes back to the input.

Dai et al. 2019, "Transformer-XL", https://arxiv.org/abs/1901.02860, section 3.2: the memory's states are behind a stop
gradient, the map that makes keys and values of them is not. With y = x W^T and the gradients G of the present and M of
the memory: dW = (G + M)^T x, dx = G W. Two maps, of x and of x detached, would take half as much work again.
x: [..., I], W: [O, I], y: [..., O].
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from kernels.dispatch.mode import is_plain


def remembered_linear_reference(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """The definition."""
    return F.linear(x, weight), F.linear(x.detach(), weight)


class _RememberedLinear(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        y = F.linear(x, weight)
        return y, y.clone()  # one tensor given out twice would be two views of one gradient

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: tuple[Tensor, Tensor]) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, present: Tensor, memory: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        needs_x, needs_weight = ctx.needs_input_grad
        both = (present + memory).flatten(0, -2)
        return present @ weight if needs_x else None, both.T @ x.flatten(0, -2) if needs_weight else None


def remembered_linear(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """(x W^T, the same without a gradient to x)."""
    # A compiler finds the common product itself, and warns of autograd functions.
    if is_plain() or torch.compiler.is_compiling():
        return remembered_linear_reference(x, weight)
    if torch.is_autocast_enabled(x.device.type):
        narrow = torch.get_autocast_dtype(x.device.type)
        x, weight = x.to(narrow), weight.to(narrow)
    if not torch.is_grad_enabled():
        y = F.linear(x, weight)
        return y, y
    return _RememberedLinear.apply(x, weight)
