"""Long short-term memory: gates decide what a cell keeps, what it adds and what it outputs.

Formula: [i; f; g; o] = W x_t + b + U h_{t-1}, c_t = sigmoid(f) c_{t-1} + sigmoid(i) tanh(g), h_t = sigmoid(o) tanh(c_t)

Hochreiter & Schmidhuber 1997, "Long Short-Term Memory", https://doi.org/10.1162/neco.1997.9.8.1735, with the forget
gate of Gers, Schmidhuber & Cummins 2000, "Learning to Forget", https://doi.org/10.1162/089976600300015015, and without
peepholes. The gates have the order of `torch.nn.LSTM`; b is the sum of its two biases. b starts at zero, except that of
f, which starts at `forget_bias` (Jozefowicz et al. 2015, https://proceedings.mlr.press/v37/jozefowicz15.html: 1). A
bidirectional block has a second recurrence that reads from the end, and each has half of the width (see `directions`).
Several layers are written as a list of blocks. In libraries such as torch the state may have another width than the
input. Here `hidden` sets its width, and a linear map brings the states back to the width of the model. B batch, T time,
N directions, H width of the state of one direction, C / N by default, C model width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from kernels.recurrence.lstm import fused_lstm, lstm, workspace
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
class LSTMConfig:
    """`forget_bias`: initial bias of the forget gate.
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
    forget_bias: float = 1.0
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
    "lstm",
    LSTMConfig,
    published=Published(
        paper={"a forget gate is added (Gers et al. 2000)": ""},
        code=("torch",),
        released={
            "the bias of the forget gate starts like the others": "forget_bias: 0.0",
            "the width of the state may differ from that of the input": "hidden: 8",
        },
    ),
)
class LSTM(Primitive):
    """An LSTM with one or two directions. Streaming keeps h and c, in float32 or wider."""

    def __init__(self, config: LSTMConfig) -> None:
        super().__init__()
        self.config = config
        self.ends = Ends(start=config.start, causal=config.causal, memory=config.memory)
        self.dropout = nn.Dropout(config.dropout)
        N, H = config.layout
        self.input = nn.Linear(config.dim, N * 4 * H)
        self.recurrent = nn.Parameter(torch.empty(N, 4 * H, H))
        for weight in (self.input.weight, self.recurrent):
            nn.init.uniform_(weight, -(H**-0.5), H**-0.5)
        with torch.no_grad():
            self.input.bias.zero_().view(N, 4, H)[:, 1] = config.forget_bias
        self.output = None if config.hidden is None else nn.Linear(N * H, config.dim)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """x: [B, T, C] -> [B, T, C]. Raises ValueError if it is not causal and the context is streaming."""
        N, H = self.config.layout
        slot = context.slot(self, causal=N == 1)
        zeros = x.new_zeros(N, x.shape[0], H, dtype=torch.promote_types(x.dtype, torch.float32))
        h, c = self.ends.first(("h", "c"), zeros, context, slot)
        if self._fuses(x, context):
            out, h, c = fused_lstm(x, self.input.weight, self.input.bias, self.recurrent, h, c)
        else:
            inputs = self.input(x)
            gates, mask = by_time(inputs, context.padding, N)
            hs, cs = lstm(gates, self.recurrent.to(gates.dtype), h, c, mask)
            out, h, c = by_batch(hs, inputs.dtype), hs[-1], cs[-1]
        self.ends.last(context, slot, h=h, c=c)
        return self.dropout(out if self.output is None else self.output(out))

    def _fuses(self, x: Tensor, context: Context) -> bool:
        """Whether PyTorch's own LSTM computes the same, only faster."""
        if torch.compiler.is_compiling():
            return False
        plain = x.device.type == "cpu" and not torch.is_autocast_enabled("cpu") and context.padding is None
        plain = plain and torch.backends.mkldnn.is_available()
        return plain and x.shape[1] > 1 and x.dtype == self.recurrent.dtype == torch.float32

    @classmethod
    def reads(cls, config: LSTMConfig) -> tuple[str, ...]:
        return (FINAL,) if config.start == "memory" else ()

    @classmethod
    def writes(cls, config: LSTMConfig) -> tuple[str, ...]:
        return () if config.causal or config.memory else (FINAL,)

    @classmethod
    def states(cls, config: LSTMConfig) -> Mapping[str, str]:
        return {"h": "B H", "c": "B H"}

    @classmethod
    def cost(cls, config: LSTMConfig, shape: Shape) -> Cost:
        N, H = config.layout
        wide = max(4, shape.element_bytes)
        if shape.element_bytes == 4 and shape.length > 1:  # the fused CPU kernel, which keeps more than the loop
            numbers = workspace(shape.rows, config.dim, H, N)
        else:
            numbers = shape.rows * N * 6 * H  # four gates, c and h
        return (
            linear(shape, config.dim, N * 4 * H)
            + matmul(shape.batch, H, 4 * H, count=N * shape.length)
            + (Cost() if config.hidden is None else linear(shape, N * H, config.dim))
            + Cost(activation_bytes=shape.rows * config.dim if config.dropout else 0)  # a mask of one byte per element
            + Cost(
                parameters=N * 4 * H * H,
                activation_bytes=numbers * wide,
                state_bytes=shape.batch * 2 * H * wide if config.causal else 0,
            )
        )
