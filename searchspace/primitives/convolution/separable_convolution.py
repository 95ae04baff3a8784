"""Separable convolution: each channel over time, then a linear map over channels, then an activation.

Formula: y_i = f(P o_i + b), o_{i,c} = sum_k W_{c,k} x_{i+k-left,c}

Chollet 2017, "Xception", https://arxiv.org/abs/1610.02357, in the form of So et al. 2019, "The Evolved Transformer",
https://arxiv.org/abs/1901.11117, section 3.2. The depthwise part has no bias, and there is no activation between the
two parts. left = K - 1 if causal, else K // 2. Beyond the ends the input is zero, and so is padding. B batch, T time, K
taps (`kernel`), C model width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from searchspace.contract import Context, Primitive, given
from searchspace.cost import Cost, Shape, kept, linear
from searchspace.primitives.convolution.convolution import Convolution, ConvolutionConfig
from searchspace.primitives.feedforward.hidden import ACTIVATIONS
from searchspace.registry import primitive


@dataclass(frozen=True, kw_only=True)
class SeparableConvolutionConfig:
    """Raises ValueError if the kernel is below 1."""

    dim: int = given()
    causal: bool = given(False)
    kernel: int = 7
    activation: Literal["identity", "relu", "gelu", "silu", "squared_relu"] = "identity"
    bias: bool = True

    def __post_init__(self) -> None:
        _ = self.depthwise  # checks the kernel

    @property
    def depthwise(self) -> ConvolutionConfig:
        """The part that runs over time."""
        return ConvolutionConfig(dim=self.dim, causal=self.causal, kernel=self.kernel)


@primitive("separable_convolution", SeparableConvolutionConfig)
class SeparableConvolution(Primitive):
    """Depthwise, pointwise, activation. Streaming keeps the last K - 1 inputs, zeros before the first."""

    def __init__(self, config: SeparableConvolutionConfig) -> None:
        super().__init__()
        self.depthwise = Convolution(config.depthwise)
        self.pointwise = nn.Linear(config.dim, config.dim, bias=config.bias)
        self.activation = ACTIVATIONS[config.activation]

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """x: [B, T, C] -> [B, T, C]. Raises ValueError if it is not causal and the context is streaming."""
        return self.activation(self.pointwise(self.depthwise(x, context)))

    @classmethod
    def cost(cls, config: SeparableConvolutionConfig, shape: Shape) -> Cost:
        """An activation keeps its input. Relu keeps its result instead, which is enough for its gradient."""
        active = 0 if config.activation == "identity" else shape.rows * config.dim
        return (
            Convolution.cost(config.depthwise, shape)
            + linear(shape, config.dim, config.dim, bias=config.bias)
            + kept(shape, active)
        )
