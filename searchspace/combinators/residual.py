"""A residual connection with the norm before the inner blocks (pre), after the sum (post), or on the stream (stream).

Formula: pre: x + drop(f(norm(x))), post: norm(x + drop(f(x))), stream: n + drop(f(n)) with n = norm(x)

post: Vaswani et al. 2017, "Attention Is All You Need", https://arxiv.org/abs/1706.03762. pre: Xiong et al. 2020, "On
Layer Normalization in the Transformer Architecture", https://arxiv.org/abs/2002.04745. A model of pre-norm blocks ends
with one more norm. stream: Zhu et al. 2021, "Long-Short Transformer", https://arxiv.org/abs/2107.02192, as in the
attention of its code.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from torch import Tensor, nn

from searchspace.checks import not_empty, probability
from searchspace.combinators.sequence import Stack
from searchspace.contract import Capabilities, Context, Primitive, given
from searchspace.cost import Cost, Shape
from searchspace.lanes import Lane
from searchspace.parts import Composite, Part, in_order
from searchspace.published import Published
from searchspace.registry import Blocks, Configured, Norm, named, primitive


@dataclass(frozen=True, kw_only=True)
class ResidualConfig:
    """`order`: where the norm is: before the blocks (pre), after the sum (post), or on the stream (stream).

    Raises ValueError if the dropout is not a probability or there are no blocks.
    """

    dim: int = given()
    norm: Norm = named("layer_norm")
    order: Literal["pre", "post", "stream"] = "pre"
    dropout: float = 0.0
    of: Blocks

    def __post_init__(self) -> None:
        probability(dropout=self.dropout)
        not_empty(of=self.of)


@primitive(
    "residual",
    ResidualConfig,
    published=Published(
        paper={"the norm is before the blocks; Vaswani et al. put it after the sum": "order: post"},
        code=("torch", "transformers", "NVIDIA/transformer-ls"),
        released={"NVIDIA/transformer-ls takes the residual from the normalised input": "order: stream"},
    ),
)
class Residual(Composite, Primitive):
    """The sum of a stream and the output of the inner blocks, with a norm."""

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
        normed, out = behind_norm(self.norm, self.of, x, context)
        return (x if self.order == "pre" else normed) + self.dropout(out)

    @property
    def pre(self) -> bool:
        """Whether consecutive sums grow. They do not if the stream or the sum is normalised."""
        return self.order == "pre"

    @classmethod
    def parts(cls, config: ResidualConfig, shape: Shape) -> list[Part]:
        norm = Part(name="norm", shape=shape, block=config.norm)
        inner = shape if config.order == "post" else replace(shape, normed=learns(config.norm, shape))
        blocks = in_order("of", config.of, inner)
        if config.dropout:  # keeps its mask of one byte per element
            mask = Cost(activation_bytes=shape.rows * config.dim)
            blocks.append(Part(name="dropout", shape=shape, own=mask))
        return [*blocks, norm] if config.order == "post" else [norm, *blocks]


def behind_norm(norm: nn.Module, blocks: nn.Module, x: Tensor, context: Context) -> tuple[Tensor, Tensor]:
    """norm(x) and blocks(norm(x)), [B, T, C] each. The blocks can read x and the norm with `context.before_norm`."""
    normed, lanes = norm(x, context), dict.fromkeys(("unnormed", "normed"))
    if next(norm.parameters(), None) is not None:
        lanes = {"unnormed": Lane(x, "B T C", norm), "normed": Lane(normed, "B T C")}
    around = context.swap(**lanes)
    out = blocks(normed, context)
    context.swap(**around)
    return normed, out


def learns(norm: Configured, shape: Shape) -> bool:
    """Whether `norm` has parameters."""
    return norm.cost(shape).parameters > 0
