"""The layers before an encoder's logits: none, or a hidden layer as in BERT.

Devlin et al. 2019, "BERT", https://arxiv.org/abs/1810.04805, and its released code. Classes: tanh(W x + b), dropout,
then the linear map. Tokens: LN(gelu(W x + b)), then the product with the table and a bias for every token. Released
models of this kind differ in the form of gelu and in the epsilon of the norm, and some have only the bias. B batch, T
time, C width, K classes, V vocabulary.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from searchspace.backbones.embedding import INITIAL_STD, TokenEmbedding, logits_part
from searchspace.cost import Cost, Shape, kept, linear
from searchspace.parts import Part

EPS = 1e-12  # of the layer norm, as released

Kind = Literal["linear", "hidden"]
Activation = Literal["gelu", "gelu_tanh"]


class ClassHead(nn.Linear):
    """x: [B, C] -> class logits [B, K], with a hidden layer before them if configured."""

    def __init__(self, width: int, classes: int, *, hidden: bool, dropout: float) -> None:
        super().__init__(width, classes)
        nn.init.normal_(self.weight, std=INITIAL_STD)
        nn.init.zeros_(self.bias)
        self.hidden = nn.Linear(width, width) if hidden else None
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """x: [B, C] -> [B, K]."""
        return super().forward(x if self.hidden is None else self.dropout(self.hidden(x).tanh()))


class TokenHead(nn.Module):
    """x: [B, T, C] -> token logits [B, T, V], with the table that the tokens are read with."""

    def __init__(
        self,
        vocabulary: int,
        width: int,
        *,
        hidden: bool,
        bias: bool = False,
        activation: Activation = "gelu",
        eps: float = EPS,
    ) -> None:
        super().__init__()
        self.hidden = None
        if hidden:
            gelu = nn.GELU("tanh" if activation == "gelu_tanh" else "none")
            self.hidden = nn.Sequential(nn.Linear(width, width), gelu, nn.LayerNorm(width, eps=eps))
        self.bias = nn.Parameter(torch.zeros(vocabulary)) if hidden or bias else None

    def forward(self, x: Tensor, embedding: TokenEmbedding) -> Tensor:
        """x: [B, T, C] -> [B, T, V]."""
        logits = embedding.logits(x if self.hidden is None else self.hidden(x))
        return logits if self.bias is None else logits + self.bias


def class_parts(classes: int, width: int, shape: Shape, *, hidden: bool, dropout: float) -> list[Part]:
    """`shape`: one position per sequence. The input of the last map is the output of the hidden tanh."""
    head = Part(name="head", shape=shape, own=linear(shape, width, classes), width=classes)
    if not hidden:
        return [head]
    own = linear(shape, width, width)
    if dropout:
        own += kept(shape, shape.rows * width) + Cost(activation_bytes=shape.rows * width)
    return [Part(name="hidden", shape=shape, own=own), head]


def token_parts(vocabulary: int, width: int, shape: Shape, *, hidden: bool, bias: bool = False) -> list[Part]:
    logits = logits_part(vocabulary, width, shape, tied=True, bias=hidden or bias)
    if not hidden:
        return [logits]
    layer = linear(shape, width, width) + kept(shape, shape.rows * (2 * width + 2))  # input of gelu and of the norm
    return [Part(name="hidden", shape=shape, own=layer + Cost(parameters=2 * width)), logits]
