"""A block of your own: each channel mixes a position with the one before it.

Formula: y_t = m * x_t + (1 - m) * x_(t-1), x_(-1) = 0, one m for every channel

Peng et al. 2023, "RWKV", https://arxiv.org/abs/2305.13048 (without its linear map). Padded positions count as
zeros. `nas blocks test examples/own_block.py` checks it. B batch, T time, C model width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from searchspace.contract import Capabilities, Context, Primitive, given
from searchspace.cost import Cost, Shape, kept
from searchspace.registry import primitive


@dataclass(frozen=True, kw_only=True)
class TokenShiftConfig:
    """`start`: the m of every channel before training."""

    dim: int = given()  # the model's width: a model fills it in
    start: float = 0.5


@primitive("token_shift", TokenShiftConfig)
class TokenShift(Primitive):
    """A token shift. Streaming keeps the last input."""

    capabilities = Capabilities(bidirectional=False)  # it looks back only, in an encoder too

    def __init__(self, config: TokenShiftConfig) -> None:
        super().__init__()
        self.mix = nn.Parameter(torch.full((config.dim,), config.start))

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """x: [B, T, C] -> [B, T, C]."""
        if context.padding is not None:
            x = x * context.padding[:, :, None]
        state = context.slot(self)  # None unless the model reads in pieces
        before = x.new_zeros(x.shape[0], 1, x.shape[2]) if not state else state["last"]
        if state is not None:
            state["last"] = x[:, -1:].clone()
        shifted = torch.cat([before, x[:, :-1]], dim=1)
        return self.mix * x + (1 - self.mix) * shifted

    @classmethod
    def states(cls, config: TokenShiftConfig) -> Mapping[str, str]:
        return {"last": "B W C"}  # its axes: a window of the last position

    @classmethod
    def cost(cls, config: TokenShiftConfig, shape: Shape) -> Cost:
        C = config.dim
        state = shape.batch * C * shape.element_bytes
        # Autograd keeps the input, the shifted input and 1 - m.
        return Cost(parameters=C, state_bytes=state) + kept(shape, 2 * shape.rows * C + C)
