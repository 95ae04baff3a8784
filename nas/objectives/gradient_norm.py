"""The norm of the loss's gradient in the untrained model, on one batch: a probe that costs one step.

Abdelfattah et al. 2021, "Zero-Cost Proxies for Lightweight NAS", https://arxiv.org/abs/2101.08134, `grad_norm` of
section 3.2.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from nas.objectives.contract import Direction, ProbeObjective
from nas.objectives.registry import objective
from searchspace.cost import Shape

if TYPE_CHECKING:
    from torch import nn

    from nas.tasks.contract import Batch, Task


@objective("gradient_norm")
class GradientNorm(ProbeObjective):
    """The Euclidean norm over all parameters. direction: a larger norm counts as better in the paper."""

    def __init__(self, shape: Shape, direction: Direction = Direction.MAXIMISE) -> None:
        super().__init__(shape)
        self.direction = direction

    def score(self, model: nn.Module, batch: Batch, task: Task) -> float:
        from searchspace.contract import Context

        context = Context()
        loss = task.loss(model, batch, context)
        (loss + context.loss().to(loss.device)).backward()
        squares = [
            each.grad.detach().double().square().sum().item() for each in model.parameters() if each.grad is not None
        ]
        return math.sqrt(sum(squares))
