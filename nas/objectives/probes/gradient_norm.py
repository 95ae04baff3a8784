"""The norm of the loss's gradient in the untrained model, on one batch: a probe that costs one step.

Abdelfattah et al. 2021, "Zero-Cost Proxies for Lightweight NAS", https://arxiv.org/abs/2101.08134, `grad_norm` of
section 3.2.
"""

from __future__ import annotations

import math

from torch import nn

from nas.objectives.probes._passes import Probe, loss_of, trained
from nas.objectives.registry import objective
from nas.tasks.contract import Batch, Task


@objective("gradient_norm")
class GradientNorm(Probe):
    """The Euclidean norm over all parameters. direction: a larger norm counts as better in the paper."""

    def score(self, model: nn.Module, batch: Batch, task: Task) -> float:
        loss_of(model, batch, task).backward()
        squares = (each.grad.detach().double().square() for each in trained(model))  # type: ignore[union-attr]
        return math.sqrt(sum(each.sum().item() for each in squares))
