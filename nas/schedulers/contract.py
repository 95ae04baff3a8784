"""The contract of a scheduler: which trial goes on to the next rung.

What it decides follows from the rung results alone, so it is rebuilt from the store by telling it what was recorded.
"""

from __future__ import annotations

from typing import Protocol


class Scheduler(Protocol):
    """`rungs` are the training steps, in all, at each rung; a trial begins at rung 0."""

    rungs: tuple[int, ...]

    def tell(self, number: int, rung: int, values: tuple[float, ...] | None) -> None:
        """Trial `number` ended `rung` with `values` (all minimised), or failed (None)."""

    def started(self, number: int, rung: int) -> None:
        """A unit for (number, rung) exists; it is not promoted to that rung again."""

    def promotion(self) -> tuple[int, int] | None:
        """The (trial, rung) that should run next, or None when a new trial is the better use of a worker."""
