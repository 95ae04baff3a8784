"""Root-mean-square normalisation: mean square one over the channels of each position, then a gain.

Formula: x / sqrt(mean(x^2) + eps) * g

Zhang & Sennrich 2019, https://arxiv.org/abs/1910.07467, eq. 4. If x is in half precision, the statistics are computed
in float32.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from kernels.rowwise.rms_norm import rms_norm
from searchspace.contract import Capabilities, Context, Primitive, given
from searchspace.cost import Cost, Shape, kept
from searchspace.published import Published
from searchspace.registry import primitive


@dataclass(frozen=True, kw_only=True)
class RmsNormConfig:
    """Raises ValueError if eps is not above 0."""

    dim: int = given()
    eps: float = 1e-6

    def __post_init__(self) -> None:
        if not self.eps > 0:
            raise ValueError(f"eps must be above 0, but got eps={self.eps}.")


@primitive(
    "rms_norm",
    RmsNormConfig,
    role="norm",
    published=Published(code=("torch", "transformers")),
)
class RmsNorm(Primitive):
    """Root-mean-square normalisation over the last dimension."""

    capabilities = Capabilities(pointwise=True)

    def __init__(self, config: RmsNormConfig) -> None:
        super().__init__()
        self.config = config
        self.gain = nn.Parameter(torch.ones(config.dim))

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """x: [B, T, C] -> [B, T, C]."""
        return rms_norm(x, self.gain, self.config.eps)

    @classmethod
    def cost(cls, config: RmsNormConfig, shape: Shape) -> Cost:
        statistics = Cost(activation_bytes=shape.rows * max(4, shape.element_bytes))
        both = kept(shape, 2 * shape.rows * config.dim)  # x, and x before the gain
        return Cost(parameters=config.dim) + both + statistics
