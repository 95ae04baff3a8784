"""The memory that generation keeps between two positions, after `length` of them were read."""

from __future__ import annotations

from nas.objectives.contract import CostObjective
from nas.objectives.registry import objective
from searchspace.cost import Cost


@objective("state_bytes")
class StateBytes(CostObjective):
    """Keys and values of attention, states of recurrences, the last inputs of convolutions."""

    def read(self, cost: Cost) -> float:
        return cost.state_bytes
