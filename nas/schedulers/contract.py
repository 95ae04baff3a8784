"""The contract of a scheduler: how long each trial trains, and which trial trains further.

A trial trains in units. The first unit trains from 0 to some number of steps; each later unit continues from the last
checkpoint. `rung` is the index of a unit within its trial: 0, 1, 2, ... `steps` are always counted from the start of
the trial. Different trials may train for different numbers of steps at the same rung.

A scheduler is pure. Its decisions follow from the calls of `tell` and `started` alone, so it is rebuilt from the study
database by repeating the recorded calls in order.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol


@dataclass(frozen=True)
class Promotion:
    """Trial `number` should continue: its next unit is `rung` and trains to `steps` in all."""

    number: int
    rung: int
    steps: int


@dataclass(frozen=True)
class Level:
    """An expected number of units that train from `start` to `steps`."""

    units: int
    start: int
    steps: int


class Wait(Enum):
    """The type of WAIT."""

    WAIT = "wait"


WAIT = Wait.WAIT  # the answer of `promotion` if a worker should stay idle until a unit of the arm has ended


class Scheduler(Protocol):
    """Constructed as `cls(**options)`; one with a parameter `objectives` is given {name: direction} of the search.

    Each arm of a study has a scheduler of its own. Trials are numbered from 0 within the arm, without gaps, in the
    order in which they were started. Its answers may be whole numbers of NumPy; none may exceed `nas.options.MOST`.
    """

    def start(self, number: int) -> int:
        """The steps of the first training unit of trial `number`. The same answer every time."""

    def tell(self, number: int, rung: int, values: tuple[float, ...] | None, steps: int) -> None:
        """A unit ended at `steps` in all. `values` are the objectives, all minimised, or None if the unit failed."""

    def started(self, number: int, rung: int, steps: int) -> None:
        """A unit of trial `number` that trains to `steps` exists, so `promotion` does not name it again."""

    def promotion(self) -> Promotion | Wait | None:
        """The trial that should continue now, or None if a new trial is the better use of a worker.

        WAIT asks for neither, for example until a level is full. It holds while units of the arm run; if none runs, it
        means None, so no search stands still. The answer stays the same until `tell` or `started` is called.
        """

    def is_last(self, number: int, rung: int, steps: int) -> bool:
        """Whether trial `number` ends with this unit, so that no promotion can follow it."""

    def horizon(self, number: int) -> int:
        """The steps at which the learning rate of trial `number` has come down: the most that it can be trained."""

    def forecast(self, trials: int) -> tuple[Level, ...]:
        """The units to expect from a budget of `trials`: levels of fewer steps first."""
