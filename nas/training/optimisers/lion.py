"""Lion: steps by the sign of an interpolated momentum, so it stores one number for each parameter.

X. Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms", https://arxiv.org/abs/2302.06675, algorithm 2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from nas.training.optimisers.adamw import Decay, Momentum, Rate
from nas.training.optimisers.registry import decaying, optimiser


@optimiser("lion")
def lion(
    model: nn.Module,
    *,
    learning_rate: Rate = 3e-4,
    weight_decay: Decay = 1.0,
    betas: tuple[Momentum, Momentum] = (0.95, 0.98),
) -> torch.optim.Optimizer:
    """Use about a tenth of the learning rate of AdamW, and ten times its weight decay. Only matrices decay."""
    return Lion(decaying(model, weight_decay), learning_rate, betas)


class Lion(torch.optim.Optimizer):
    """betas: the weight of the momentum against the gradient in a step, and the decay of the momentum."""

    def __init__(self, params: Any, lr: float, betas: tuple[float, float]) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """One update: w <- (1 - lr * decay) w - lr * sign(beta1 m + (1 - beta1) g)."""
        for group in self.param_groups:
            first, second = group["betas"]
            for parameter in group["params"]:
                gradient = parameter.grad
                if gradient is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state["momentum"] = torch.zeros_like(parameter)
                momentum = state["momentum"]
                parameter.mul_(1 - group["lr"] * group["weight_decay"])
                parameter.sub_(group["lr"] * torch.lerp(gradient, momentum, first).sign())
                momentum.lerp_(gradient, 1 - second)
