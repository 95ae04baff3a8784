"""Any metric of a task, by its name: `{metric: accuracy, direction: maximize}`."""

from __future__ import annotations

from nas.objectives.contract import Direction, MetricObjective
from nas.objectives.registry import objective
from searchspace.cost import Shape


@objective("metric")
class Metric(MetricObjective):
    """metric: its name, as the task reports it. direction: which values are better."""

    def __init__(self, shape: Shape, metric: str, direction: Direction = Direction.MINIMISE) -> None:
        super().__init__(shape)
        self.name, self.direction = metric, direction
