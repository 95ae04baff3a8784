"""Blocks with one set of parameters at several places: `use: NAME` stands for the blocks that `define` calls NAME.

Formula: f_n(.. f_2(f_1(x))), with the same parameters at every place

Lan et al. 2020, "ALBERT", https://arxiv.org/abs/1909.11942, section 3.1, shares the parameters of all layers, or those
of their attention or feed-forward blocks alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from searchspace.checks import not_empty
from searchspace.combinators.sequence import Stack
from searchspace.contract import Capabilities, Context, Primitive
from searchspace.cost import Shape
from searchspace.parts import Composite, Part, after, in_order
from searchspace.published import Published
from searchspace.registry import Blocks, primitive
from searchspace.sharing import shared


@dataclass(frozen=True, kw_only=True)
class UseConfig:
    """`name`: of the definition.
    `of`: the blocks that it names; the language fills them in.

    Raises ValueError if there are no blocks.
    """

    name: str
    of: Blocks

    def __post_init__(self) -> None:
        not_empty(of=self.of)


@primitive(
    "use",
    UseConfig,
    published=Published(paper={"any blocks may be shared, at any places; the paper shares layers": ""}),
)
class Use(Composite, Primitive):
    """Defined blocks, applied in order. Places with one name have one set of parameters, and states of their own."""

    capabilities = Capabilities(pointwise=True)

    def __init__(self, config: UseConfig) -> None:
        super().__init__()
        self.of = shared(("use", config.name), lambda: Stack(config.of))

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """x: [B, T, C] -> [B, T, C]."""
        return self.of(x, context)

    @classmethod
    def parts(cls, config: UseConfig, shape: Shape) -> list[Part]:
        return in_order("of", config.of, shape, common=("use", config.name))

    @classmethod
    def after(cls, config: UseConfig, shape: Shape) -> Shape:
        return after(config.of, shape)
