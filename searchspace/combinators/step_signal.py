"""What a recurrent block adds to its state at every step, so that its shared weights know where they are.

Dehghani et al. 2019, "Universal Transformers", https://arxiv.org/abs/1807.03819, eq. 6: the state of position p enters
step t as state + sinusoid(p) + sinusoid(t), t from 1.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from searchspace.contract import Context
from searchspace.primitives.position.sinusoidal import sinusoid

Signal = Literal["none", "step", "position_and_step"]


class StepSignal(nn.Module):
    """none: adds nothing. step: sinusoid(t). position_and_step: sinusoid(p) + sinusoid(t), as published."""

    def __init__(self, kind: Signal, dim: int, times: int) -> None:
        super().__init__()
        self.kind = kind
        self.dim = dim
        steps = sinusoid(torch.arange(1, times + 1), dim) if kind != "none" else None
        self.register_buffer("steps", steps, persistent=False)  # [times, C]

    def forward(self, x: Tensor, step: int, context: Context) -> Tensor:
        """x: [B, T, C], the state that enters step `step` (from 0) -> the same shape."""
        if self.kind == "none":
            return x
        signal = self.steps[step]
        if self.kind == "position_and_step":
            positions = torch.arange(x.shape[1], device=x.device) if context.positions is None else context.positions
            signal = signal + sinusoid(positions, self.dim)  # [T, C]
        return x + signal.to(x.dtype)
