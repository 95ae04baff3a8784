"""The compute of one forward pass."""

from __future__ import annotations

from nas.objectives.contract import CostObjective
from nas.objectives.registry import objective
from searchspace.cost import Cost


@objective("flops")
class Flops(CostObjective):
    """FLOPs of one forward pass. Halting blocks count at the measured depth, before training at the untrained depth."""

    def read(self, cost: Cost) -> float:
        return cost.expected_flops
