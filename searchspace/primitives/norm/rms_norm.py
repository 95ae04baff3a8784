"""Root-mean-square normalisation: every position has a mean square of one over its channels, then a gain.

Zhang & Sennrich 2019, https://arxiv.org/abs/1910.07467, eq. 4: x / sqrt(mean(x^2) + eps) * g. Statistics are taken in
float32 when x is in half precision.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from kernels.rowwise.rms_norm import rms_norm
from searchspace.contract import Capabilities, Context, Primitive, given
from searchspace.cost import Cost, Shape, kept
from searchspace.registry import primitive


@dataclass(frozen=True, kw_only=True)
class RmsNormConfig:
    dim: int = given()
    eps: float = 1e-6

    def __post_init__(self) -> None:
        if not self.eps > 0:
            raise ValueError(f"eps must be above 0, but got eps={self.eps}.")


@primitive("rms_norm", RmsNormConfig, role="norm")
class RmsNorm(Primitive):
    capabilities = Capabilities(pointwise=True)

    def __init__(self, config: RmsNormConfig) -> None:
        super().__init__()
        self.config = config
        self.gain = nn.Parameter(torch.ones(config.dim))

    def forward(self, x: Tensor, context: Context) -> Tensor:
        return rms_norm(x, self.gain, self.config.eps)

    @classmethod
    def cost(cls, config: RmsNormConfig, shape: Shape) -> Cost:
        statistics = Cost(activation_bytes=shape.rows * max(4, shape.element_bytes))
        both = kept(shape, 2 * shape.rows * config.dim)  # x, and x before the gain
        return Cost(parameters=config.dim) + both + statistics
