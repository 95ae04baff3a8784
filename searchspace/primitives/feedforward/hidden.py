"""What the hidden layers of feed-forward blocks share: the activations by name, and what dropout on them keeps."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import Tensor
from torch.nn import functional as F

from searchspace.cost import Cost, Shape, kept


def squared_relu(x: Tensor) -> Tensor:
    """max(x, 0)^2; So et al. 2021, "Primer", https://arxiv.org/abs/2109.08668, section 3."""
    return F.relu(x).square()


def identity(x: Tensor) -> Tensor:
    return x


ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,  # the exact one, with erf; T5 v1.1 used the tanh approximation
    "silu": F.silu,
    "squared_relu": squared_relu,
    "sigmoid": lambda x: x.sigmoid(),
    "identity": identity,
}


def dropped(dropout: float, shape: Shape, width: int) -> Cost:
    """What dropout keeps: its mask, one byte an element, and the result that the next map reads."""
    if not dropout:
        return Cost()
    return Cost(activation_bytes=shape.rows * width) + kept(shape, shape.rows * width)
