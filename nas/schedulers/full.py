"""Train every trial in full, in one unit."""

from __future__ import annotations

from nas.options import Steps
from nas.schedulers.contract import Level, Promotion
from nas.schedulers.registry import scheduler


@scheduler("full")
class Full:
    """steps: training steps of a trial."""

    def __init__(self, *, steps: Steps) -> None:
        self.steps = steps

    def start(self, number: int) -> int:
        return self.steps

    def tell(self, number: int, rung: int, values: tuple[float, ...] | None, steps: int) -> None:
        """A result changes nothing."""

    def started(self, number: int, rung: int, steps: int) -> None:
        """A started unit changes nothing."""

    def promotion(self) -> Promotion | None:
        return None

    def is_last(self, number: int, rung: int, steps: int) -> bool:
        return True

    def horizon(self, number: int) -> int:
        return self.steps

    def forecast(self, trials: int) -> tuple[Level, ...]:
        return (Level(trials, 0, self.steps),)
