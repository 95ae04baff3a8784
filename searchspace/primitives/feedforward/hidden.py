"""Helpers of feed-forward blocks: the activations by name, and the cost of dropout on a hidden layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import Tensor
from torch.nn import functional as F

from searchspace.cost import Cost, Shape, kept

QUICK = 1.702
LEAK = 0.2  # slope of leaky relu below zero, as in the search that found the Evolved Transformer


def squared_relu(x: Tensor) -> Tensor:
    """max(x, 0)^2, any shape; So et al. 2021, "Primer", https://arxiv.org/abs/2109.08668, section 3."""
    return F.relu(x).square()


def quick_gelu(x: Tensor) -> Tensor:
    """x sigmoid(1.702 x), any shape, an approximation of gelu.

    Hendrycks and Gimpel 2016, https://arxiv.org/abs/1606.08415.
    """
    return F.silu(QUICK * x) / QUICK  # this form keeps one tensor for the backward pass instead of two


def identity(x: Tensor) -> Tensor:
    """x unchanged, any shape."""
    return x


ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,  # the exact one, with erf
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),  # GPT-2 and T5 v1.1
    "quick_gelu": quick_gelu,
    "silu": F.silu,  # also called swish
    "squared_relu": squared_relu,
    "sigmoid": lambda x: x.sigmoid(),
    "leaky_relu": lambda x: F.leaky_relu(x, LEAK),
    "identity": identity,
}


def dropped(dropout: float, shape: Shape, width: int) -> Cost:
    """The memory that dropout keeps: its mask of one byte per element, and the result that the next map reads."""
    if not dropout:
        return Cost()
    return Cost(activation_bytes=shape.rows * width) + kept(shape, shape.rows * width)
