"""What an objective promises: a number for an architecture, and which way is better."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from typing import ClassVar

from nas.errors import UsageError
from searchspace.architecture import Architecture
from searchspace.build import cost
from searchspace.cost import Cost, Shape
from searchspace.errors import nearest

HALTING = "halting_steps"  # the metric that says how deep halting blocks went


class Direction(StrEnum):
    MINIMISE = "minimize"
    MAXIMISE = "maximize"


class Objective(ABC):
    """Constructed as `cls(shape, **options)`; `shape` is the input that costs are asked for.

    trained: whether it needs the metrics of a trained model. Those that do not run first, before any training.
    """

    name: str
    direction: Direction = Direction.MINIMISE
    trained: ClassVar[bool] = False

    def __init__(self, shape: Shape) -> None:
        self.shape = shape

    @abstractmethod
    def evaluate(self, architecture: Architecture, metrics: Mapping[str, float] | None = None) -> float:
        """The value, in the words of `direction`; `metrics` are those of the last rung, None before training."""

    def minimised(self, value: float) -> float:
        """`value` turned so that less is better, as strategies and schedulers are told; its own inverse."""
        return value if self.direction is Direction.MINIMISE else -value


class CostObjective(Objective):
    """An objective read off the costs of an architecture."""

    def evaluate(self, architecture: Architecture, metrics: Mapping[str, float] | None = None) -> float:
        depth = None if metrics is None else metrics.get(HALTING)
        return float(self.read(cost(architecture, replace(self.shape, halting_steps=depth))))

    @abstractmethod
    def read(self, cost: Cost) -> float:
        """The number that counts."""


class MetricObjective(Objective):
    """An objective read off the metrics of a trained model."""

    trained = True

    def evaluate(self, architecture: Architecture, metrics: Mapping[str, float] | None = None) -> float:
        if metrics is None or self.name not in metrics:
            known = sorted(metrics or {})
            raise UsageError(
                f"objective {self.name}: the task gives no such metric.{nearest(self.name, known)} "
                f"It gives: {', '.join(known) or 'none'}."
            )
        return metrics[self.name]
