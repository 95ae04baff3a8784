"""How much the loss changes if single weights are removed, summed over all weights.

Lee, Ajanthan, Torr 2019, "SNIP: Single-shot Network Pruning based on Connection Sensitivity",
https://arxiv.org/abs/1810.02340, as a score of whole networks in Abdelfattah et al. 2021,
https://arxiv.org/abs/2101.08134, section 3.2: the sum of |w dL/dw|.
"""

from __future__ import annotations

from torch import nn

from nas.objectives.probes._passes import Probe, loss_of, trained
from nas.objectives.registry import objective
from nas.tasks.contract import Batch, Task


@objective("snip")
class Snip(Probe):
    """The sum of |w dL/dw| over all parameters."""

    def score(self, model: nn.Module, batch: Batch, task: Task) -> float:
        loss_of(model, batch, task).backward()
        products = ((each.detach() * each.grad).abs() for each in trained(model))  # type: ignore[operator]
        return sum(each.double().sum().item() for each in products)
