"""The protocol between the search and the thing it measures.

The search decides what to measure; a bench runs it. There are two: `OperationBench` asks a child process to measure one
of our operations, and `tuner.triton.bench.KernelBench` launches a user's Triton kernel in this process.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from kernels.dispatch.registry import Choice
from tuner.outcome import Outcome


class DeviceLost(Exception):
    """After `choice` this process cannot compute on its device any more; `error` is what the device raised."""

    def __init__(self, choice: Choice, outcome: Outcome, error: Exception) -> None:
        super().__init__(outcome.message)
        self.choice, self.outcome, self.error = choice, outcome, error


class Bench(ABC):
    """Runs the candidates of one problem.

    A candidate that fails gives an Outcome that says how it failed. The only exceptions are DeviceLost, and
    `tuner.measure.children.TimeIsUp` if the session ends before the answer comes.
    """

    startup_seconds = 0.0  # spent so far on starting processes; the search does not charge them to the problem

    def prepare(self) -> None:  # noqa: B027
        """Called before the first measurement of a search."""

    @abstractmethod
    def measure(self, choice: Choice, best: float) -> Outcome:
        """Check that `choice` is correct, then time it.

        best: milliseconds of the fastest candidate so far; a bench may take fewer samples of one that is clearly
        slower.
        """

    @abstractmethod
    def compare(self, times: Mapping[Choice, float], more: int = 1) -> dict[Choice, Outcome]:
        """Check the choices in `times` again, and time those that are correct in turns; every choice has an outcome.

        times: milliseconds of each choice, as measured before. more: times as many rounds as the effort says.
        """

    def forget(self) -> None:  # noqa: B027
        """Called after the last measurement of a search: release what it held, and restore what it changed."""

    def bounds(self, choices: Sequence[Choice]) -> list[float]:
        """The least milliseconds that each choice can take on this device; 0 if nothing is known."""
        return [0.0] * len(choices)

    def expected_seconds(self, choice: Choice) -> float:
        """How long measuring `choice` is likely to take; 0 if nothing is known."""
        return 0.0

    def comparison_seconds(self, times: Mapping[Choice, float], more: int = 1) -> float:
        """How long `compare` is likely to take; 0 if nothing is known."""
        return 0.0

    def precompile(self, choices: Sequence[Choice]) -> None:  # noqa: B027
        """Compile `choices`, which are measured next, in the background."""
