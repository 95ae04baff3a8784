"""Separable convolution: each channel over time, then a linear map over channels, then an activation.

Formula: y_i = f(P o_i + b), o_{i,c} = sum_k W_{c,k} x_{i+k-left,c}

Chollet 2017, "Xception", https://arxiv.org/abs/1610.02357, in the form of So et al. 2019, "The Evolved Transformer",
https://arxiv.org/abs/1901.11117, section 3.2. The depthwise part has no bias, and there is no activation between the
two parts. left = K - 1 if causal, else K // 2. The input is zero beyond the ends and at padding.

Two convolutions of PyTorch in sequence also have a bias after the depthwise part: `depthwise_bias`. The released code
(Keras and tensor2tensor: `filters`) may have another output width: `width`. If there are fewer channels than C, zeros
follow them, as in the authors' code, which pads them before a sum. B batch, T time, K taps (`kernel`), C model width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor, nn
from torch.nn import functional as F

from searchspace.contract import Context, Primitive, given
from searchspace.cost import Cost, Shape, kept, linear
from searchspace.primitives.convolution.convolution import Convolution, ConvolutionConfig
from searchspace.primitives.feedforward.hidden import ACTIVATIONS
from searchspace.published import Published
from searchspace.registry import primitive


@dataclass(frozen=True, kw_only=True)
class SeparableConvolutionConfig:
    """`width`: width of the output as a multiple of C. Below 1, zeros fill it up to C. Above 1, it must be a whole
    number, and only the last block of a decoder's body may have it.
    `depthwise_bias`: whether the depthwise part has a bias.
    `bias`: whether the pointwise part has a bias.

    Raises ValueError if the kernel is below 1, or the output has no channel or a width that is not possible here.
    """

    dim: int = given()
    causal: bool = given(False)
    widens: bool = given(False)
    kernel: int = 7
    width: float = 1.0
    depthwise_bias: bool = False
    activation: Literal["identity", "relu", "gelu", "silu", "squared_relu"] = "identity"
    bias: bool = True

    def __post_init__(self) -> None:
        _ = self.depthwise  # checks the kernel
        if self.outputs < 1:
            raise ValueError(
                f"width must leave at least one channel, but got width={self.width} of {self.dim} channels."
            )
        if self.width > 1 and (not self.widens or self.width % 1):
            raise ValueError(
                "width must be at most 1, or a whole number in the last block of a decoder's body, but got "
                f"width={self.width}."
            )

    @property
    def outputs(self) -> int:
        """The number of channels that the pointwise part computes."""
        return int(self.width * self.dim)

    @property
    def depthwise(self) -> ConvolutionConfig:
        """The part that runs over time."""
        return ConvolutionConfig(dim=self.dim, causal=self.causal, kernel=self.kernel, bias=self.depthwise_bias)


@primitive(
    "separable_convolution",
    SeparableConvolutionConfig,
    published=Published(
        code=("tensorflow/tensor2tensor",),
        released={"the output may have another width, and is padded with zeros before a sum": "width: 0.5"},
    ),
)
class SeparableConvolution(Primitive):
    """Depthwise, pointwise, activation. Streaming keeps the last K - 1 inputs, zeros before the first."""

    def __init__(self, config: SeparableConvolutionConfig) -> None:
        super().__init__()
        self.missing = max(0, config.dim - config.outputs)
        self.depthwise = Convolution(config.depthwise)
        self.pointwise = nn.Linear(config.dim, config.outputs, bias=config.bias)
        self.activation = ACTIVATIONS[config.activation]

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """x: [B, T, C] -> [B, T, C], or wider if `width` is above 1.

        Raises ValueError if it is not causal and the context is streaming.
        """
        out = self.activation(self.pointwise(self.depthwise(x, context)))
        return F.pad(out, (0, self.missing)) if self.missing else out

    @classmethod
    def widening(cls, fields: Mapping[str, Any]) -> int:
        width = fields.get("width", 1.0)
        return int(width) if isinstance(width, int | float) and width > 1 else 1

    @classmethod
    def cost(cls, config: SeparableConvolutionConfig, shape: Shape) -> Cost:
        """An activation keeps its input. Relu keeps its result instead, which is enough for its gradient."""
        active = 0 if config.activation == "identity" else shape.rows * config.outputs
        return (
            Convolution.cost(config.depthwise, shape)
            + linear(shape, config.dim, config.outputs, bias=config.bias)
            + kept(shape, active)
        )
