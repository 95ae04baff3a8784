"""The registry of schedules, and their common part: the warm-up.

A schedule is a class: its constructor takes options, and `rate` gives the learning rate of a step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Protocol

from nas.options import MOST, AfterValidator, Field, Number
from nas.registry import Registry, Thing

registry = Registry("schedule", "nas.training.schedules")


class Schedule(Protocol):
    """How the learning rate changes during training."""

    def rate(self, peak: float, step: int, horizon: int) -> float:
        """The learning rate of `step`, counted from 0. `peak` is the highest; training ends at `horizon` steps."""


def schedule(name: str) -> Callable[[Thing], Thing]:
    """Register a class as the schedule `name`."""
    return registry.register(name)


def schedules() -> list[str]:
    """The names of all schedules, sorted."""
    return registry.names()


def make(name: str, options: Mapping[str, Any] | None = None) -> Schedule:
    """The schedule `name` with `options`. Raises UsageError for an unknown name or an invalid option."""
    return registry.make(name, {}, options or {})


def _steps(value: float) -> float:
    if value >= 1 and value != int(value):
        raise ValueError("must be a fraction below 1 or a whole number of steps")
    return value


# Below 1 the fraction of all steps, from 1 on the number of steps.
Steps = Annotated[Number, Field(le=MOST), AfterValidator(_steps)]


def counted(steps: float, horizon: int) -> float:
    """`steps` as a number of steps of `horizon`."""
    return steps if steps >= 1 else int(steps * horizon)


def warming(peak: float, step: int, warmup: float) -> float | None:
    """The learning rate during the first `warmup` steps, in which it rises linearly; None after them."""
    return peak * (step + 1) / warmup if step < warmup else None
