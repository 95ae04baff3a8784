"""A residual connection with its norm before the inner blocks (pre), after the sum (post), or on the stream (stream).

Formula: pre: x + drop(f(norm(x))), post: norm(x + drop(f(x))), stream: n + drop(f(n)) with n = norm(x)

post: norm(x + drop(f(x))), Vaswani et al. 2017, "Attention Is All You Need", https://arxiv.org/abs/1706.03762.
pre: x + drop(f(norm(x))), Xiong et al. 2020, "On Layer Normalization in the Transformer Architecture",
https://arxiv.org/abs/2002.04745; a model of pre-norm blocks ends with one more norm.
stream: n + drop(f(n)) with n = norm(x), the attention of Zhu et al. 2021, "Long-Short Transformer",
https://arxiv.org/abs/2107.02192, as its code has it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from searchspace.checks import not_empty, probability
from searchspace.combinators.sequence import Stack
from searchspace.contract import Capabilities, Context, Primitive, given
from searchspace.cost import Cost, Shape
from searchspace.parts import Composite, Part, in_order
from searchspace.registry import Blocks, Norm, named, primitive


@dataclass(frozen=True, kw_only=True)
class ResidualConfig:
    """`order`: whether the norm is before the blocks (pre), after the sum (post), or on the stream."""

    dim: int = given()
    norm: Norm = named("layer_norm")
    order: Literal["pre", "post", "stream"] = "pre"
    dropout: float = 0.0
    of: Blocks

    def __post_init__(self) -> None:
        probability(dropout=self.dropout)
        not_empty(of=self.of)


@primitive("residual", ResidualConfig)
class Residual(Composite, Primitive):
    capabilities = Capabilities(pointwise=True)

    def __init__(self, config: ResidualConfig) -> None:
        super().__init__()
        self.order = config.order
        self.norm = config.norm.build()
        self.of = Stack(config.of)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """x: [B, T, C] -> [B, T, C]."""
        if self.order == "post":
            return self.norm(x + self.dropout(self.of(x, context)), context)
        normed = self.norm(x, context)
        return (x if self.order == "pre" else normed) + self.dropout(self.of(normed, context))

    @property
    def pre(self) -> bool:
        """Whether sums in a row grow: those of a normalised stream do not, nor those that are normalised."""
        return self.order == "pre"

    @classmethod
    def parts(cls, config: ResidualConfig, shape: Shape) -> list[Part]:
        norm = Part(name="norm", shape=shape, block=config.norm)
        blocks = in_order("of", config.of, shape)
        if config.dropout:  # its mask is kept, one byte an element
            mask = Cost(activation_bytes=shape.rows * config.dim)
            blocks.append(Part(name="dropout", shape=shape, own=mask))
        return [*blocks, norm] if config.order == "post" else [norm, *blocks]
