"""The contract of an objective: a number for an architecture, and which direction is better."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from nas.errors import NasError, UsageError
from searchspace.cost import Cost, Shape
from searchspace.errors import nearest
from searchspace.model.architecture import Architecture
from searchspace.model.build import cost

if TYPE_CHECKING:
    from torch import nn

    from nas.store import Store
    from nas.tasks.contract import Batch, Task
    from searchspace.space.space import Space


Stage = Literal["cost", "probe", "metric", "later"]


class Direction(StrEnum):
    """Which values are better: smaller or larger ones."""

    MINIMISE = "minimize"
    MAXIMISE = "maximize"


NAME = re.compile(r"[^\W\d_][\w.-]{0,63}")
COLUMNS = ("trial", "rung", "state", "architecture", "steps", "arm", "baseline", "final", "activity", "note", "seconds")


def name_problem(name: str) -> str:
    """Why an objective cannot have this name, as a sentence; empty if it can. The name becomes a column of tables."""
    if name in COLUMNS:
        return f"{name!r} is another column of the tables, so it cannot be the name of an objective"
    if not NAME.fullmatch(name):
        return f"a name is a letter and up to 63 letters, digits, dots, hyphens and underscores, but got {name!r}"
    return ""


class NoValue(NasError):
    """The objective has no value for this architecture, so the trial fails."""


@dataclass(frozen=True)
class Search:
    """What an objective may know about its search. say: shows a line to people.

    evidence: how earlier values of an objective were found, by its name; the oldest trial first.
    """

    space: Space | None = None
    store: Store | None = None
    say: Callable[[str], None] = lambda text: None
    evidence: Callable[[str], Iterable[Mapping[str, Any]]] = lambda name: ()


class Objective(ABC):
    """Constructed as `cls(shape, **options)`; costs are those for an input of this shape.

    stage: when its value is found.
      cost: from the architecture, before anything runs.
      probe: from a built, untrained model and one batch, by a unit that runs on a worker before training.
      metric: from the metrics of a trained model.
      later: by `nas latency` on another machine, before or after the trial has ended (`machine`).
    settled: whether a trial keeps its first value, because a second measurement would give another.
    """

    name: str
    direction: Direction = Direction.MINIMISE
    stage: Stage = "cost"
    settled: ClassVar[bool] = False
    refused: str = ""  # why no new search may have it, such as an option without effect; a study that exists goes on
    placed: bool = False  # whether its option `on` says where it is measured
    machine: str | None = None  # the name of the machine that finds its values, if its stage is `later`

    def __init__(self, shape: Shape) -> None:
        self.shape = shape

    @abstractmethod
    def evaluate(self, architecture: Architecture, metrics: Mapping[str, float] | None = None) -> float:
        """The value, not yet turned by `direction`. `metrics` are those of the last rung, None before training.

        Raises NoValue if this architecture has none.
        """

    def begin(self, search: Search) -> None:  # noqa: B027  # most have nothing to begin
        """Called once when a search begins, before anything is evaluated. It must not measure anything."""

    def check(self, task: Task) -> None:  # noqa: B027  # most have a value for every task
        """Raise ValueError if it has no value for any model of `task`."""

    def evidence(self, architecture: Architecture) -> dict[str, Any] | None:
        """How a measured value was found, as plain data that is stored with the trial; None for a computed value."""
        return None

    def on_worker(self, architecture: Architecture) -> dict[str, float]:
        """What a probe finds from the architecture alone, by name: the value, and what else to record; mostly nothing.

        It runs on a worker.
        """
        return {}

    def check_like(self, evidence: Mapping[str, Any]) -> None:  # noqa: B027  # most values are the same everywhere
        """Raises UsageError if a stored value with this evidence cannot be compared with values that are found here."""

    def unlike(self, evidence: Mapping[str, Any]) -> str:
        """Why a worker's value with this evidence cannot be compared with the others of the study; empty if it can."""
        return ""

    def minimised(self, value: float) -> float:
        """`value` with the sign that makes smaller better, for strategies and schedulers. It is its own inverse."""
        return value if self.direction is Direction.MINIMISE else -value


def cost_of(architecture: Architecture, shape: Shape) -> Cost:
    """The cost of an architecture for an input of this shape. Raises SpaceError if the architecture is not valid."""
    return (_kept_cost if architecture.configured.is_ours else cost)(architecture, shape)


@lru_cache(maxsize=32)  # several objectives ask for the cost of one architecture, one after the other
def _kept_cost(architecture: Architecture, shape: Shape) -> Cost:
    return cost(architecture, shape)


class CostObjective(Objective):
    """An objective that is computed from the costs of an architecture."""

    def evaluate(self, architecture: Architecture, metrics: Mapping[str, float] | None = None) -> float:
        """The cost, at the depth that halting blocks reached if `metrics` have it."""
        return float(self.read(cost_of(architecture, self.shape.at_depth(metrics))))

    @abstractmethod
    def read(self, cost: Cost) -> float:
        """The value of the objective."""


class NoMetric(UsageError):
    """The metrics of a trained model lack one that an objective needs."""


class MetricObjective(Objective):
    """An objective that is a metric of a trained model."""

    stage = "metric"

    def evaluate(self, architecture: Architecture, metrics: Mapping[str, float] | None = None) -> float:
        """The metric of this name. Raises NoMetric if there is none."""
        value = (metrics or {}).get(self.name)
        if value is None:
            known = sorted(metrics or {})
            raise NoMetric(
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
