"""The compute of one forward pass."""

from __future__ import annotations

from nas.objectives.contract import CostObjective
from nas.objectives.registry import objective
from searchspace.cost import Cost


@objective("flops")
class Flops(CostObjective):
    """A multiply-add is two; halting blocks count at the depth that was measured, or before training is expected."""

    def read(self, cost: Cost) -> float:
        return cost.expected_flops
