"""What a forward pass keeps for the backward pass: most of the memory that training needs."""

from __future__ import annotations

from nas.objectives.contract import CostObjective
from nas.objectives.registry import objective
from searchspace.cost import Cost


@objective("activation_bytes")
class ActivationBytes(CostObjective):
    """Counted from the blocks; a framework's own scratch memory comes on top."""

    def read(self, cost: Cost) -> float:
        return cost.activation_bytes
