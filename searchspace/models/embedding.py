"""Where tokens or vectors enter a model, and where logits leave it; all models share it.

Press and Wolf 2017, "Using the Output Embedding to Improve Language Models", https://arxiv.org/abs/1608.05859, for the
tied table; Vaswani et al. 2017, section 3.4, for its scale. B batch, T time, C width, V vocabulary, F features.
"""

from __future__ import annotations

import math

from torch import Tensor, nn
from torch.nn import functional as F

from searchspace.cost import Cost, Shape, kept, matmul
from searchspace.parts import Part

INITIAL_STD = 0.02  # of the table: logits start small, so that the first loss is near log V


class TokenEmbedding(nn.Module):
    """[B, T] tokens -> [B, T, C], times sqrt(C) with `scale`; `logits` goes back, by the same table when `tied`."""

    def __init__(self, vocabulary: int, width: int, *, scale: bool, tied: bool = True) -> None:
        super().__init__()
        self.table = nn.Embedding(vocabulary, width)
        self.output = None if tied else nn.Linear(width, vocabulary, bias=False)
        self.factor = math.sqrt(width) if scale else 1.0
        for module in (self.table, self.output):
            if module is not None:
                nn.init.normal_(module.weight, std=INITIAL_STD)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.table(tokens) * self.factor

    def logits(self, x: Tensor) -> Tensor:
        """[B, T, C] -> [B, T, V]."""
        return F.linear(x, self.table.weight if self.output is None else self.output.weight)


def token_part(vocabulary: int, width: int, shape: Shape) -> Part:
    """A look-up has no matrix product; it keeps the tokens, eight bytes each."""
    return Part(name="embedding", shape=shape, own=Cost(parameters=vocabulary * width, activation_bytes=8 * shape.rows))


def logits_part(vocabulary: int, width: int, shape: Shape, *, tied: bool) -> Part:
    """The product with the table, which keeps its input, and the logits, which the loss keeps."""
    own = matmul(shape.rows, width, vocabulary) + kept(shape, shape.rows * (width + vocabulary))
    table = Cost() if tied else Cost(parameters=vocabulary * width)
    return Part(name="logits", shape=shape, own=own + table, width=vocabulary)


def features_part(features: int, width: int, shape: Shape) -> Part:
    """A `Linear(F, C)` on the data, which needs no gradient."""
    own = matmul(shape.rows, features, width, backward=1) + kept(shape, shape.rows * features)
    return Part(name="input", shape=shape, own=own + Cost(parameters=(features + 1) * width))
