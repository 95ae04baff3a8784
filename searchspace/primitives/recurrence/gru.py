"""Gated recurrent unit: one gate mixes the old state with a new one, another gate decides how the new one uses the old.

Formula: r = sigmoid(W_r x + b_r + U_r h), z = sigmoid(W_z x + b_z + U_z h), h_t = (1 - z) n + z h, h the state before

Cho et al. 2014, "Learning Phrase Representations using RNN Encoder-Decoder", https://arxiv.org/abs/1406.1078, section
2.3, eq. 5-8. The new state n depends on the variant. torch: n = tanh(W_n x + b_n + r * (U_n h + b')), as in
`torch.nn.GRU`; the other biases are the sums of its pairs. cho: n = tanh(W_n x + b_n + U_n (r * h)), as in the paper.
The order of the gates is r, z, n. A bidirectional block has a second recurrence that reads from the end, and each has
half of the width (see `directions`). Several layers are written as a list of blocks. In libraries such as torch the
state may have another width than the input. Here `hidden` sets its width, and a linear map brings the states back to
the width of the model. B batch, T time, N directions, H width of the state of one direction, C / N by default, C model
width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from kernels.recurrence.gru import gru
from searchspace.checks import probability
from searchspace.contract import Context, Primitive, given
from searchspace.cost import Cost, Shape, linear, matmul
from searchspace.primitives.recurrence.directions import (
    FINAL,
    Directions,
    Ends,
    Start,
    by_batch,
    by_time,
    check_start,
    directions,
)
from searchspace.published import Published
from searchspace.registry import primitive


@dataclass(frozen=True, kw_only=True)
class GRUConfig:
    """`variant`: the formula of the new state n: as in `torch.nn.GRU` (torch) or as in the paper (cho).
    `hidden`: H, the width of the state of one direction; null divides the width of the model between the directions.
    `directions`: both directions, or forward only; a causal block always reads forward only.
    `start`: whether the first state is zeros or the last state of the encoder (memory).
    `dropout`: probability of dropout on the output, not on the state (Zaremba et al. 2014,
    https://arxiv.org/abs/1409.2329).

    Raises ValueError if two directions cannot share dim, the hidden width is below 1, the dropout is not a probability,
    or the block starts from an encoder that the model does not have.
    """

    dim: int = given()
    causal: bool = given(False)
    memory: bool = given(False)
    variant: Literal["torch", "cho"] = "torch"
    hidden: int | None = None
    directions: Directions = "both"
    start: Start = "zeros"
    dropout: float = 0.0

    def __post_init__(self) -> None:
        _ = self.layout
        check_start(self.start, self.memory)
        probability(dropout=self.dropout)

    @property
    def layout(self) -> tuple[int, int]:
        """(N, H), the directions and the width of each."""
        return directions(self.dim, forward=self.causal or self.directions == "forward", hidden=self.hidden)


@primitive(
    "gru",
    GRUConfig,
    published=Published(
        paper={"the reset gate is applied after the product, as in torch": "variant: cho"},
        code=("torch",),
        released={"the width of the state may differ from that of the input": "hidden: 8"},
    ),
)
class GRU(Primitive):
    """A GRU with one or two directions. Streaming keeps h, in float32 or wider."""

    def __init__(self, config: GRUConfig) -> None:
        super().__init__()
        self.config = config
        self.ends = Ends(start=config.start, causal=config.causal, memory=config.memory)
        self.dropout = nn.Dropout(config.dropout)
        N, H = config.layout
        self.input = nn.Linear(config.dim, N * 3 * H)
        self.recurrent = nn.Parameter(torch.empty(N, 3 * H, H))
        self.bias = nn.Parameter(torch.empty(N, H)) if config.variant == "torch" else None
        for weight in self.parameters():
            nn.init.uniform_(weight, -(H**-0.5), H**-0.5)
        self.output = None if config.hidden is None else nn.Linear(N * H, config.dim)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """x: [B, T, C] -> [B, T, C]. Raises ValueError if it is not causal and the context is streaming."""
        N, H = self.config.layout
        slot = context.slot(self, causal=N == 1)
        projected = self.input(x)
        inputs, mask = by_time(projected, context.padding, N)
        (h,) = self.ends.first(("h",), inputs.new_zeros(*inputs.shape[1:3], H), context, slot)
        bias = None if self.bias is None else self.bias.to(inputs.dtype)
        hs = gru(inputs, self.recurrent.to(inputs.dtype), bias, h, mask)
        self.ends.last(context, slot, h=hs[-1])
        out = by_batch(hs, projected.dtype)
        return self.dropout(out if self.output is None else self.output(out))

    @classmethod
    def reads(cls, config: GRUConfig) -> tuple[str, ...]:
        return (FINAL,) if config.start == "memory" else ()

    @classmethod
    def writes(cls, config: GRUConfig) -> tuple[str, ...]:
        return () if config.causal or config.memory else (FINAL,)

    @classmethod
    def states(cls, config: GRUConfig) -> Mapping[str, str]:
        return {"h": "B H"}

    @classmethod
    def cost(cls, config: GRUConfig, shape: Shape) -> Cost:
        N, H = config.layout
        wide, torchs = max(4, shape.element_bytes), config.variant == "torch"
        return (
            linear(shape, config.dim, N * 3 * H)
            + matmul(shape.batch, H, 3 * H, count=N * shape.length)
            + (Cost() if config.hidden is None else linear(shape, N * H, config.dim))
            + Cost(activation_bytes=shape.rows * config.dim if config.dropout else 0)  # a mask of one byte per element
            + Cost(
                parameters=N * (3 * H * H + (H if torchs else 0)),
                activation_bytes=shape.rows * N * (5 if torchs else 4) * H * wide,  # r, z, n, h; U_n h + b'
                state_bytes=shape.batch * H * wide if config.causal else 0,
            )
        )
