"""Layer normalisation: mean zero and variance one over the channels of each position, then a gain and a bias.

Formula: (x - mean) / sqrt(var + eps) * g + b

Ba et al. 2016, "Layer Normalization", https://arxiv.org/abs/1607.06450, eq. 4. The variance is divided by C, and eps is
inside the root. If x is in half precision, the statistics are computed in float32.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from kernels.rowwise.layer_norm import layer_norm
from searchspace.contract import Capabilities, Context, Primitive, given
from searchspace.cost import Cost, Shape, kept
from searchspace.published import Published
from searchspace.registry import primitive


@dataclass(frozen=True, kw_only=True)
class LayerNormConfig:
    """`bias`: whether a learned bias follows the gain.

    Raises ValueError if eps is not above 0.
    """

    dim: int = given()
    eps: float = 1e-5
    bias: bool = True

    def __post_init__(self) -> None:
        if not self.eps > 0:
            raise ValueError(f"eps must be above 0, but got eps={self.eps}.")


@primitive(
    "layer_norm",
    LayerNormConfig,
    role="norm",
    published=Published(code=("torch",)),
)
class LayerNorm(Primitive):
    """Layer normalisation over the last dimension."""

    capabilities = Capabilities(pointwise=True)

    def __init__(self, config: LayerNormConfig) -> None:
        super().__init__()
        self.config = config
        self.gain = nn.Parameter(torch.ones(config.dim))
        self.bias = nn.Parameter(torch.zeros(config.dim)) if config.bias else None

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """x: [B, T, C] -> [B, T, C]."""
        return layer_norm(x, self.gain, self.bias, self.config.eps)

    @classmethod
    def cost(cls, config: LayerNormConfig, shape: Shape) -> Cost:
        statistics = Cost(activation_bytes=2 * shape.rows * max(4, shape.element_bytes))
        return Cost(parameters=config.dim * (1 + config.bias)) + kept(shape, shape.rows * config.dim) + statistics
