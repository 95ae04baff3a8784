"""Objectives that are metrics of a trained model on held-out data."""

from __future__ import annotations

from nas.objectives.contract import Direction, MetricObjective
from nas.objectives.registry import objective
from searchspace.cost import Shape


@objective("loss")
class Loss(MetricObjective):
    """The task's own loss, in its unit: nats per symbol for text, nats per example for classes."""


@objective("error")
class Error(MetricObjective):
    """The fraction of held-out examples that are classified wrongly, from 0 to 1."""


@objective("bits_per_byte")
class BitsPerByte(MetricObjective):
    """The bits that a model needs to encode one byte of held-out text.

    Comparable between tokenisations: characters are counted in bytes of UTF-8 too.
    """


@objective("metric")
class Metric(MetricObjective):
    """Any metric of a task, by its name: `{metric: accuracy, direction: maximize}`.

    metric: its name, as the task reports it. direction: which values are better.
    """

    def __init__(self, shape: Shape, metric: str, direction: Direction = Direction.MINIMISE) -> None:
        super().__init__(shape)
        self.name, self.direction = metric, direction
