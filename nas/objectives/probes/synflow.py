"""How much flows through all paths of a network whose weights are replaced by their absolute values.

Tanaka et al. 2020, "Pruning neural networks without any data by iteratively conserving synaptic flow",
https://arxiv.org/abs/2006.05467, as a score of whole networks in Abdelfattah et al. 2021,
https://arxiv.org/abs/2101.08134, section 3.2: the sum of |w dR/dw|, R the sum of the outputs.

The papers feed ones. A model that reads tokens has no such input, so it reads the batch. Norms stay in place.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from nas.objectives.probes._passes import Probe, loss_of, trained, watched
from nas.objectives.registry import objective
from nas.tasks.contract import Batch, Task


@objective("synflow")
class SynFlow(Probe):
    """The sum of |w dR/dw| over all parameters, with |w| in place of w."""

    def score(self, model: nn.Module, batch: Batch, task: Task) -> float:
        with absolute(model), watched(model) as seen:
            loss_of(model, batch, task)
            seen.of_model()[1].sum().backward()
            products = ((each.detach() * each.grad).abs() for each in trained(model))  # type: ignore[operator]
            return sum(each.double().sum().item() for each in products)


@contextmanager
def absolute(model: nn.Module) -> Iterator[None]:
    """Every parameter is its absolute value inside the block."""
    before = [each.detach().clone() for each in model.parameters()]
    try:
        with torch.no_grad():
            for each in model.parameters():
                each.abs_()
        yield
    finally:
        with torch.no_grad():
            for each, value in zip(model.parameters(), before, strict=True):
                each.copy_(value)
