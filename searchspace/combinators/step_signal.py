"""The signal that depth recurrence adds to its state at every step, so that shared weights can depend on the step.

Dehghani et al. 2019, "Universal Transformers", https://arxiv.org/abs/1807.03819, eq. 6: at step t, counted from 1, the
state of position p enters as state + sinusoid(p) + sinusoid(t).
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from searchspace.contract import Context
from searchspace.primitives.position.sinusoidal import Sinusoidal, SinusoidalConfig

Signal = Literal["none", "step", "position_and_step"]


class StepSignal(nn.Module):
    """none: adds nothing. step: sinusoid(t). position_and_step: sinusoid(p) + sinusoid(t), as published."""

    def __init__(self, kind: Signal, dim: int) -> None:
        super().__init__()
        self.kind = kind
        self.waves = None if kind == "none" else Sinusoidal(SinusoidalConfig(dim=dim))

    def forward(self, x: Tensor, step: int, context: Context) -> Tensor:
        """x: [B, T, C], the state that enters step `step`, counted from 0 -> the same shape."""
        if self.waves is None:
            return x
        x = self.waves.embed(x, torch.full((1,), step + 1, device=x.device))
        return self.waves(x, context) if self.kind == "position_and_step" else x


def check_signal(kind: Signal, dim: int) -> None:
    """Raises ValueError if the signal needs sinusoids and `dim` is odd."""
    if kind != "none":
        SinusoidalConfig(dim=dim)
