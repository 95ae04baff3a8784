"""The number of trainable parameters."""

from __future__ import annotations

from nas.objectives.contract import CostObjective
from nas.objectives.registry import objective
from searchspace.cost import Cost


@objective("parameters")
class Parameters(CostObjective):
    """Shared parameters and tied embeddings count once."""

    def read(self, cost: Cost) -> float:
        return cost.parameters
