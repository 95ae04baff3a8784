"""The operations of a branch of a cell. Each reads a position and its neighbours and can have any output width.

dense: a linear map of the position. convolution: a linear map of all K neighbours. separable: a convolution of each
channel with its own taps, then a linear map; Chollet 2017, https://arxiv.org/abs/1610.02357. lightweight: the same, but
the channels of a head share softmax-normalised taps; Wu et al. 2019, https://arxiv.org/abs/1901.10430, eq. 2. identity:
the input unchanged. B batch, T time, K taps (`kernel`), H heads of taps, N input channels, M output channels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from kernels.convolution.depthwise_convolution import depthwise_convolution
from kernels.convolution.lightweight_convolution import lightweight_convolution
from searchspace.cost import Cost, Shape, kept, linear, matmul
from searchspace.primitives.attention.heads import check_heads
from searchspace.primitives.feedforward.hidden import ACTIVATIONS

Kind = Literal["dense", "convolution", "separable", "lightweight", "identity", "none"]
Activation = Literal["identity", "relu", "leaky_relu", "gelu", "silu", "squared_relu"]

OVER_TIME = ("convolution", "separable", "lightweight")


@dataclass(frozen=True, kw_only=True)
class OperationConfig:
    """One operation. `heads` is only used by the lightweight one.

    Raises ValueError if the operation is lightweight and heads does not divide its inputs.
    """

    kind: Kind
    kernel: int
    inputs: int
    outputs: int
    activation: Activation
    heads: int

    def __post_init__(self) -> None:
        if self.kind == "lightweight":
            check_heads(self.inputs, self.heads)

    @property
    def taps(self) -> int:
        """The number of positions that one output position reads."""
        return self.kernel if self.kind in OVER_TIME else 1

    @property
    def parameters_over_time(self) -> int:
        """The number of parameters of the taps alone; 0 for a full convolution, which has no separate taps."""
        return {"separable": self.inputs, "lightweight": self.heads}.get(self.kind, 0) * self.kernel


class Operation(nn.Module):
    """One operation: [B, T + K - 1, N] -> [B, T, M]. The input already contains the neighbours on both sides."""

    def __init__(self, config: OperationConfig) -> None:
        super().__init__()
        self.config = config
        self.activation = ACTIVATIONS[config.activation]
        if config.parameters_over_time:
            self.taps = nn.Parameter(torch.empty(config.parameters_over_time // config.kernel, config.kernel))
            bound = config.kernel**-0.5  # the outputs have the scale of the inputs for any K
            nn.init.uniform_(self.taps, -bound, bound)
        if config.kind == "convolution":
            self.map: nn.Module = nn.Conv1d(config.inputs, config.outputs, config.kernel)
        elif config.kind != "identity":
            self.map = nn.Linear(config.inputs, config.outputs)

    def forward(self, x: Tensor) -> Tensor:
        """x: [B, T + K - 1, N] -> [B, T, M]."""
        return self.activation(self._mapped(x))

    def _mapped(self, x: Tensor) -> Tensor:
        match self.config.kind:
            case "identity":
                return x
            case "convolution":
                return self.map(x.transpose(1, 2)).transpose(1, 2)
            case "separable":
                return self.map(depthwise_convolution(x, self.taps))
            case "lightweight":
                return self.map(lightweight_convolution(x, self.taps.softmax(1)))
        return self.map(x)


def operation_cost(config: OperationConfig, shape: Shape) -> Cost:
    """The cost without the padded input of an operation over time. Branches share that input, so the block
    counts it.
    """
    N, M, K = config.inputs, config.outputs, config.taps
    active = 0 if config.activation == "identity" else shape.rows * M
    normalised = config.parameters_over_time + N * K if config.kind == "lightweight" else 0
    cost = Cost(parameters=config.parameters_over_time) + kept(shape, active + normalised)
    match config.kind:
        case "identity":
            return cost
        case "convolution":
            return cost + matmul(shape.rows, K * N, M) + Cost(parameters=(K * N + 1) * M)
        case "separable" | "lightweight":
            return cost + matmul(shape.rows, K, N) + linear(shape, N, M)
    return cost + linear(shape, N, M)
