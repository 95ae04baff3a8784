"""Every trial is trained in full, in one go."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from nas.schedulers.registry import scheduler


@scheduler("full")
class Full:
    """`steps`: training steps of a trial."""

    def __init__(self, *, steps: Annotated[int, Field(ge=1)]) -> None:
        self.rungs = (steps,)

    def tell(self, number: int, rung: int, values: tuple[float, ...] | None) -> None:
        """Nothing follows from it."""

    def started(self, number: int, rung: int) -> None:
        """Nothing follows from it."""

    def promotion(self) -> tuple[int, int] | None:
        return None
