"""Blocks applied one after another.

Formula: f_n(.. f_2(f_1(x)))
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from torch import Tensor, nn

from searchspace.contract import Capabilities, Context, Primitive
from searchspace.cost import Shape
from searchspace.parts import Composite, Part, after, in_order
from searchspace.registry import Blocks, Configured, primitive


class Stack(nn.ModuleList):
    """The blocks of a field, built and called in order. All combinators use it."""

    def __init__(self, blocks: Iterable[Configured]) -> None:
        super().__init__(block.build() for block in blocks)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """x: [B, T, C] -> [B, T, C]."""
        for block in self:
            x = block(x, context)
        return x


@dataclass(frozen=True, kw_only=True)
class SequenceConfig:
    """`of`: the blocks, one after another; an empty list is the identity."""

    of: Blocks


@primitive("sequence", SequenceConfig)
class Sequence(Composite, Primitive):
    """Blocks applied in order."""

    capabilities = Capabilities(pointwise=True)

    def __init__(self, config: SequenceConfig) -> None:
        super().__init__()
        self.of = Stack(config.of)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """x: [B, T, C] -> [B, T, C]."""
        return self.of(x, context)

    @classmethod
    def parts(cls, config: SequenceConfig, shape: Shape) -> list[Part]:
        return in_order("of", config.of, shape)

    @classmethod
    def after(cls, config: SequenceConfig, shape: Shape) -> Shape:
        return after(config.of, shape)
