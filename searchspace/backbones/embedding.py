"""Input and output of all models: tokens or vectors become positions, and positions become logits.

Press and Wolf 2017, "Using the Output Embedding to Improve Language Models", https://arxiv.org/abs/1608.05859, for the
tied table; Vaswani et al. 2017, section 3.4, for its scale. `Start` chooses the initial scale of the table. B batch, T
time, C width, V vocabulary, F features.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from searchspace.cost import Cost, Shape, kept, matmul
from searchspace.parts import Part

INITIAL_STD = 0.02  # of a small start: tied logits are then small too, so that the first loss is near log V

# The standard deviation of the elements of a new table of tokens. small: 0.02. unit: 1 / sqrt(C), as in the code of
# Vaswani et al. and of Dehghani et al. 2019, so that scaled tokens start at the scale of one, like the positions added
# to them. With a tied table, the logit of a position's own token is then large before training, about sqrt(C).
Start = Literal["small", "unit"]


class TokenEmbedding(nn.Module):
    """tokens: [B, T] -> [B, T, C], times sqrt(C) with `scale`. `logits` is the reverse, with the same table if `tied`.

    start: the initial scale of the input table. output_width: the width that a separate output table reads, C by
    default. bias: whether the logit of each token has a bias.
    """

    def __init__(
        self,
        vocabulary: int,
        width: int,
        *,
        scale: bool,
        tied: bool = True,
        output_width: int | None = None,
        bias: bool = False,
        start: Start = "small",
    ) -> None:
        super().__init__()
        self.table = nn.Embedding(vocabulary, width)
        self.output = None if tied else nn.Linear(output_width or width, vocabulary, bias=False)
        self.bias = nn.Parameter(torch.zeros(vocabulary)) if bias else None
        self.factor = math.sqrt(width) if scale else 1.0
        nn.init.normal_(self.table.weight, std=INITIAL_STD if start == "small" else 1 / math.sqrt(width))
        if self.output is not None:
            nn.init.normal_(self.output.weight, std=INITIAL_STD)

    def forward(self, tokens: Tensor) -> Tensor:
        """tokens: [B, T] int64, or in their place rows of the table, [B, T, C] -> [B, T, C]."""
        return (tokens if tokens.is_floating_point() else self.table(tokens)) * self.factor

    def logits(self, x: Tensor) -> Tensor:
        """x: [B, T, C] -> [B, T, V]."""
        if self.output is None:
            return F.linear(x, self.table.weight, self.bias)
        return self.output(x) if self.bias is None else self.output(x) + self.bias


class SegmentEmbedding(nn.Module):
    """Adds a vector for the segment of each position; a negative segment gets none.

    Devlin et al. 2019, "BERT", https://arxiv.org/abs/1810.04805, section 3: sentence A or sentence B.
    """

    def __init__(self, segments: int, width: int) -> None:
        super().__init__()
        self.table = nn.Parameter(INITIAL_STD * torch.randn(segments, width))

    def forward(self, x: Tensor, segments: Tensor | None) -> Tensor:
        """x: [B, T, C], segments: [B, T] int64, None for all in the first -> [B, T, C].

        Raises ValueError if a segment is beyond the table.
        """
        if segments is None:
            return x + self.table[0]
        if not torch.compiler.is_compiling() and (last := int(segments.max())) >= len(self.table):
            raise ValueError(f"Segments count from 0 to {len(self.table) - 1} here, but got {last}; set segments.")
        return x + F.embedding(segments.clamp(min=0), self.table) * (segments >= 0)[:, :, None]


def segment_part(segments: int, width: int, shape: Shape) -> Part:
    """A look-up. It keeps the segments, eight bytes each, and the mask of real segments."""
    own = Cost(parameters=segments * width, activation_bytes=9 * shape.rows)
    return Part(name="segments", shape=shape, own=own)


def token_part(vocabulary: int, width: int, shape: Shape) -> Part:
    """A look-up. It has no matrix product and keeps the tokens, eight bytes each."""
    return Part(name="embedding", shape=shape, own=Cost(parameters=vocabulary * width, activation_bytes=8 * shape.rows))


def logits_part(vocabulary: int, width: int, shape: Shape, *, tied: bool, bias: bool = False) -> Part:
    """The product with the table, which keeps its input, and the logits, which the loss keeps."""
    own = matmul(shape.rows, width, vocabulary) + kept(shape, shape.rows * (width + vocabulary))
    own += Cost(parameters=(0 if tied else vocabulary * width) + (vocabulary if bias else 0))
    return Part(name="logits", shape=shape, own=own, width=vocabulary)


def features_part(features: int, width: int, shape: Shape) -> Part:
    """A `Linear(F, C)` on the data. The data need no gradient."""
    own = matmul(shape.rows, features, width, backward=1) + kept(shape, shape.rows * features)
    return Part(name="input", shape=shape, own=own + Cost(parameters=(features + 1) * width))
