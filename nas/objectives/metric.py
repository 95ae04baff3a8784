"""Any metric of a task, by its name: `{metric: accuracy, direction: maximize}`."""

from __future__ import annotations

from typing import Any

from nas.objectives.contract import Direction, MetricObjective
from nas.objectives.registry import objective
from searchspace.cost import Shape
from searchspace.errors import nearest


@objective("metric")
class Metric(MetricObjective):
    """The metric called `metric`, as the task gives it."""

    def __init__(self, shape: Shape, metric: str, direction: Any = Direction.MINIMISE) -> None:
        super().__init__(shape)
        if not isinstance(metric, str):
            raise ValueError(f"metric must be the name of a metric, but got {metric!r}.")
        known = [str(way) for way in Direction]
        if direction not in known:
            raise ValueError(
                f"direction must be {' or '.join(known)}, but got {direction!r}.{nearest(direction, known)}"
            )
        self.name, self.direction = metric, Direction(direction)
