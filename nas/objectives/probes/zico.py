"""How large gradients are, compared with how much they differ from batch to batch.

Li et al. 2023, "ZiCo: Zero-shot NAS via Inverse Coefficient of Variation on Gradients",
https://arxiv.org/abs/2301.11300, as in the released code (github.com/SLDGroup/ZiCo): the sum over layers of
log(sum over weights of mean |g| / standard deviation of g). Weights whose gradient does not vary are left out. A layer
is a parameter of two or more dimensions. The batches are the parts of one batch.
"""

from __future__ import annotations

import math
from typing import Annotated

import torch
from torch import Tensor, nn

from nas.objectives.contract import Direction
from nas.objectives.probes._passes import Probe, check_examples, loss_of, split
from nas.objectives.registry import objective
from nas.options import Field, Positive
from nas.tasks.contract import Batch, Task
from searchspace.cost import Shape


@objective("zico")
class ZiCo(Probe):
    """parts: how many batches the first batch is divided into, if it has as many examples. It needs two examples."""

    def __init__(
        self, shape: Shape, parts: Annotated[Positive, Field(ge=2)] = 4, direction: Direction = Direction.MAXIMISE
    ) -> None:
        super().__init__(shape, direction)
        self.parts = parts

    def check(self, task: Task) -> None:
        """Raise ValueError if a batch of the task cannot be divided."""
        check_examples(self.name, task)

    def score(self, model: nn.Module, batch: Batch, task: Task) -> float:
        layers = [each for each in model.parameters() if each.ndim > 1 and each.requires_grad]
        found: list[list[Tensor]] = [[] for _ in layers]
        for part in split(batch, self.parts):
            gradients = torch.autograd.grad(loss_of(model, part, task), layers, allow_unused=True)
            for gathered, gradient in zip(found, gradients, strict=True):
                if gradient is not None:
                    gathered.append(gradient.double())
        return of_gradients([torch.stack(gathered) for gathered in found if gathered])


def of_gradients(layers: list[Tensor]) -> float:
    """The score of the gradients [batches, ...] of each layer; NaN if one of them is not finite."""
    total = 0.0
    for each in layers:
        if not each.isfinite().all():
            return math.nan  # their spread is NaN, so they would count as gradients that do not vary
        spread = each.std(dim=0, correction=0)
        varies = spread > 0
        ratio = (each.abs().mean(dim=0)[varies] / spread[varies]).sum().item()
        total += math.log(ratio) if ratio > 0 else 0.0
    return total
