"""Layer normalisation: every position has mean zero and variance one over its channels, then a gain and a bias.

Ba et al. 2016, "Layer Normalization", https://arxiv.org/abs/1607.06450, eq. 4: (x - mean) / sqrt(var + eps) * g + b,
the variance divided by C, eps inside the root. Statistics are taken in float32 when x is in half precision.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from kernels.rowwise.layer_norm import layer_norm
from searchspace.contract import Capabilities, Context, Primitive, given
from searchspace.cost import Cost, Shape, kept
from searchspace.registry import primitive


@dataclass(frozen=True, kw_only=True)
class LayerNormConfig:
    dim: int = given()
    eps: float = 1e-5
    bias: bool = True

    def __post_init__(self) -> None:
        if not self.eps > 0:
            raise ValueError(f"eps must be above 0, but got eps={self.eps}.")


@primitive("layer_norm", LayerNormConfig, role="norm")
class LayerNorm(Primitive):
    capabilities = Capabilities(pointwise=True)

    def __init__(self, config: LayerNormConfig) -> None:
        super().__init__()
        self.config = config
        self.gain = nn.Parameter(torch.ones(config.dim))
        self.bias = nn.Parameter(torch.zeros(config.dim)) if config.bias else None

    def forward(self, x: Tensor, context: Context) -> Tensor:
        return layer_norm(x, self.gain, self.bias, self.config.eps)

    @classmethod
    def cost(cls, config: LayerNormConfig, shape: Shape) -> Cost:
        statistics = Cost(activation_bytes=2 * shape.rows * max(4, shape.element_bytes))
        return Cost(parameters=config.dim * (1 + config.bias)) + kept(shape, shape.rows * config.dim) + statistics
