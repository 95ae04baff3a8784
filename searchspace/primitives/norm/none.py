"""No normalisation. It lets a search decide whether a norm is needed at all.

Formula: y = x
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from searchspace.contract import Capabilities, Context, Primitive, given
from searchspace.cost import Cost, Shape
from searchspace.registry import primitive


@dataclass(frozen=True, kw_only=True)
class NoNormConfig:
    dim: int = given()


@primitive("none", NoNormConfig, role="norm")
class NoNorm(Primitive):
    capabilities = Capabilities(pointwise=True)

    def __init__(self, config: NoNormConfig) -> None:
        super().__init__()

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """x: [B, T, C] -> [B, T, C]."""
        return x

    @classmethod
    def cost(cls, config: NoNormConfig, shape: Shape) -> Cost:
        return Cost()
