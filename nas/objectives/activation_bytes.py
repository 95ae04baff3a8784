"""The memory that a forward pass keeps for the backward pass: most of the memory of training."""

from __future__ import annotations

from nas.objectives.contract import CostObjective
from nas.objectives.registry import objective
from searchspace.cost import Cost


@objective("activation_bytes")
class ActivationBytes(CostObjective):
    """Computed from the blocks. The scratch memory of the framework is not included."""

    def read(self, cost: Cost) -> float:
        return cost.activation_bytes
