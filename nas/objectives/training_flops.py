"""The compute of one forward and backward pass."""

from __future__ import annotations

from nas.objectives.contract import CostObjective
from nas.objectives.registry import objective
from searchspace.cost import Cost


@objective("training_flops")
class TrainingFlops(CostObjective):
    """A multiply-add counts as two; every step of a halting block counts."""

    def read(self, cost: Cost) -> float:
        return cost.training_flops
