"""What an objective promises: a number for an architecture, and which way is better."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from nas.errors import NasError, UsageError
from nas.metrics import lookup
from searchspace.cost import Cost, Shape
from searchspace.errors import nearest
from searchspace.model.architecture import Architecture
from searchspace.model.build import cost

if TYPE_CHECKING:
    from torch import nn

    from nas.store import Store
    from nas.tasks.contract import Batch, Task
    from searchspace.space.space import Space


Stage = Literal["cost", "probe", "metric"]


class Direction(StrEnum):
    MINIMISE = "minimize"
    MAXIMISE = "maximize"


class NoValue(NasError):
    """An architecture that an objective has no value for: its trial fails."""


@dataclass(frozen=True)
class Search:
    """What an objective may know of the search it is asked by: its space, where it keeps things, how it tells people.

    evidence: what was told before of an objective, by its name; of the oldest trial first.
    """

    space: Space | None = None
    store: Store | None = None
    say: Callable[[str], None] = lambda text: None
    evidence: Callable[[str], Iterable[Mapping[str, Any]]] = lambda name: ()


class Objective(ABC):
    """Constructed as `cls(shape, **options)`; `shape` is the input that costs are asked for.

    stage: when its value is found.
      cost: from the architecture, before anything runs.
      probe: from a built, untrained model and one batch, by a unit that runs on a worker before training.
      metric: from the metrics of a trained model.
    settled: whether a trial keeps its first value, because a second measurement would give another.
    """

    name: str
    direction: Direction = Direction.MINIMISE
    stage: ClassVar[Stage] = "cost"
    settled: ClassVar[bool] = False

    def __init__(self, shape: Shape) -> None:
        self.shape = shape

    @abstractmethod
    def evaluate(self, architecture: Architecture, metrics: Mapping[str, float] | None = None) -> float:
        """The value, in the words of `direction`; `metrics` are those of the last rung, None before training."""

    def begin(self, search: Search) -> None:  # noqa: B027  # most have nothing to begin
        """Told once by whoever runs a search, before anything is evaluated. Measures nothing."""

    def evidence(self, architecture: Architecture) -> dict[str, Any] | None:
        """How the value was found, as plain data, where it was not computed; it is kept with the trial."""
        return None

    def minimised(self, value: float) -> float:
        """`value` turned so that less is better, as strategies and schedulers are told; its own inverse."""
        return value if self.direction is Direction.MINIMISE else -value


class CostObjective(Objective):
    """An objective read off the costs of an architecture."""

    def evaluate(self, architecture: Architecture, metrics: Mapping[str, float] | None = None) -> float:
        return float(self.read(cost(architecture, self.shape.at_depth(metrics))))

    @abstractmethod
    def read(self, cost: Cost) -> float:
        """The number that counts."""


class MetricObjective(Objective):
    """An objective that is a metric of a trained model."""

    stage = "metric"

    def evaluate(self, architecture: Architecture, metrics: Mapping[str, float] | None = None) -> float:
        """The metric of this name. Raises UsageError if there is none."""
        value = lookup(metrics or {}, self.name)
        if value is None:
            known = sorted(metrics or {})
            raise UsageError(
                f"objective {self.name}: the task gives no such metric.{nearest(self.name, known)} "
                f"It gives: {', '.join(known) or 'none'}."
            )
        return value


class ProbeObjective(Objective):
    """An objective of an untrained model, found by a probe: a unit that builds the model and draws one batch."""

    stage = "probe"

    @abstractmethod
    def score(self, model: nn.Module, batch: Batch, task: Task) -> float:
        """The value, in the sense of `direction`. It runs on a worker, under the trial's seed.

        model: built and on its device, in training mode. batch: the first of training, on the same device.
        """

    def evaluate(self, architecture: Architecture, metrics: Mapping[str, float] | None = None) -> float:
        """The value that a probe found; `metrics` are those of the probe. Raises UsageError if it is not there."""
        if metrics is None or self.name not in metrics:
            raise UsageError(f"objective {self.name}: it is found by a probe, but there is no value from one.")
        return metrics[self.name]
