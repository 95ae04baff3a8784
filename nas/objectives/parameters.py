"""Trainable numbers: what a model weighs on disk."""

from __future__ import annotations

from nas.objectives.contract import CostObjective
from nas.objectives.registry import objective
from searchspace.cost import Cost


@objective("parameters")
class Parameters(CostObjective):
    """Shared weights and tied tables count once."""

    def read(self, cost: Cost) -> float:
        return cost.parameters
