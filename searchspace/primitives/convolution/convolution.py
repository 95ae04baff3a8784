"""Convolution over time: each position reads its neighbours, weighted by their relative position.

Formula: depthwise: out_{i,c} = sum_k W_{c,k} x_{i+k-left,c}, full: out_i = sum_k W_k x_{i+k-left}

Depthwise, each channel has its own taps: Chollet 2017, "Xception", https://arxiv.org/abs/1610.02357; Wu et al. 2019,
"Pay Less Attention", https://arxiv.org/abs/1901.10430, eq. 1. Full, each output channel reads all channels: Gehring et
al. 2017, https://arxiv.org/abs/1705.03122. left = K - 1 if causal, else K // 2. Beyond the ends the input is zero. A
depthwise convolution does not mix channels. B batch, T time, K taps (`kernel`), C model width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from kernels.convolution.depthwise_convolution import depthwise_convolution
from searchspace.checks import at_least
from searchspace.contract import Context, Primitive, given
from searchspace.cost import Cost, Shape, kept, matmul
from searchspace.primitives.convolution.neighbours import TAIL, tail_cost, with_neighbours
from searchspace.published import Published
from searchspace.registry import primitive


@dataclass(frozen=True, kw_only=True)
class ConvolutionConfig:
    """`kind`: whether each channel has its own taps (depthwise), or each output channel reads all channels (full).
    `bias`: whether each output channel has a bias.

    Raises ValueError if the kernel is below 1.
    """

    dim: int = given()
    causal: bool = given(False)
    kernel: int = 3
    kind: Literal["depthwise", "full"] = "depthwise"
    bias: bool = False

    def __post_init__(self) -> None:
        at_least(1, kernel=self.kernel)

    @property
    def inputs(self) -> int:
        """The number of input channels that one output channel reads."""
        return 1 if self.kind == "depthwise" else self.dim


@primitive(
    "convolution",
    ConvolutionConfig,
    published=Published(code=("torch",)),
)
class Convolution(Primitive):
    """Convolution over time. Streaming keeps the last K - 1 inputs, zeros before the first."""

    def __init__(self, config: ConvolutionConfig) -> None:
        super().__init__()
        self.config = config
        bound = (config.inputs * config.kernel) ** -0.5  # the outputs have the scale of the inputs for any K
        self.weight = nn.Parameter(torch.empty(config.dim, config.inputs, config.kernel).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.zeros(config.dim)) if config.bias else None

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """x: [B, T, C] -> [B, T, C]. Raises ValueError if it is not causal and the context is streaming."""
        padded = with_neighbours(self, x, self.config.kernel, context, causal=self.config.causal)
        if self.config.kind == "depthwise":
            out = depthwise_convolution(padded, self.weight[:, 0])
        else:
            out = F.conv1d(padded.transpose(1, 2), self.weight).transpose(1, 2)
        return out if self.bias is None else out + self.bias

    @classmethod
    def states(cls, config: ConvolutionConfig) -> Mapping[str, str]:
        return TAIL

    @classmethod
    def cost(cls, config: ConvolutionConfig, shape: Shape) -> Cost:
        C, K = config.dim, config.kernel
        parameters = C * config.inputs * K + (C if config.bias else 0)
        return (
            matmul(shape.rows, config.inputs * K, C)
            + kept(shape, shape.batch * (shape.length + K - 1) * C)
            + tail_cost(K, C, shape, causal=config.causal)
            + Cost(parameters=parameters)
        )
