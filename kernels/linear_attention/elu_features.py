"""elu(x) + 1 in place: neither the input nor a second copy of the result is kept.

Katharopoulos et al. 2020, "Transformers are RNNs", https://arxiv.org/abs/2006.16236, eq. 7. The gradient follows from
the result y: it is 1 where y > 1 (there x > 0), else y, which is exp(x).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from kernels.dispatch.mode import is_plain


def elu_features_reference(x: Tensor) -> Tensor:
    """The definition, for x of any shape."""
    return F.elu(x) + 1


def elu_features(x: Tensor) -> Tensor:
    """elu(x) + 1, which overwrites x, of any shape. Nothing else may use x afterwards, not even a backward pass."""
    return elu_features_reference(x) if is_plain() or torch.compiler.is_compiling() else _EluFeatures.apply(x)


class _EluFeatures(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return F.elu(x, inplace=True).add_(1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.mark_dirty(output)
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        return grad * y.clamp(max=1) if torch.is_grad_enabled() else y.clamp(max=1).mul_(grad)
