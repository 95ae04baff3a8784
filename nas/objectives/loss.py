"""The task's own loss on held-out data."""

from __future__ import annotations

from nas.objectives.contract import MetricObjective
from nas.objectives.registry import objective


@objective("loss")
class Loss(MetricObjective):
    """In the unit of the task: nats per symbol for text, nats per example for classes."""
