"""What a tuning strategy promises: which configuration to measure next, given those that were.

Pure: seeded, no I/O, the same answers for the same results. A configuration is its number in the space.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from tuner.space import TuningSpace


@dataclass(frozen=True)
class Hints:
    """What D other devices say of N configurations; see `tuner.search.transfer`. times: [D, N], logarithms of
    milliseconds,
    from zero for the fastest on each device. weights: [D], above zero, one together: how alike each device is."""

    times: np.ndarray
    weights: np.ndarray


class Strategy(ABC):
    """first: configurations to measure before any of its own choice, such as the default. hints: what other devices
    say, which a strategy may use; nothing is served because of it."""

    def __init__(
        self, space: TuningSpace, seed: int = 0, first: tuple[int, ...] = (), hints: Hints | None = None
    ) -> None:
        if hints is not None and hints.times.shape != (len(hints.weights), len(space)):
            shape = (len(hints.weights), len(space))
            raise ValueError(
                f"hints must be {shape}, a number for each device and configuration, got {hints.times.shape}."
            )
        self.space = space
        self.hints = hints
        self.rng = np.random.default_rng(seed)
        self.first = list(dict.fromkeys(first))
        self.results: dict[int, float | None] = {}  # milliseconds by number, None for one that failed

    def ask(self) -> int | None:
        """The next configuration, never one that is known; None when all are."""
        while self.first:
            if (number := self.first.pop(0)) not in self.results:
                return number
        return self.propose() if len(self.results) < len(self.space) else None

    def tell(self, number: int, milliseconds: float | None) -> None:
        """What came of a configuration; None when it did not compile, was wrong, or crashed."""
        self.results[number] = milliseconds

    @abstractmethod
    def propose(self) -> int:
        """A configuration that is not known; there is one."""

    @property
    def best(self) -> int | None:
        """The fastest so far."""
        valid = {number: value for number, value in self.results.items() if value is not None}
        return min(valid, key=lambda number: (valid[number], number)) if valid else None

    def unknown(self) -> np.ndarray:
        """The configurations that are not known, in order."""
        mask = np.ones(len(self.space), dtype=bool)
        mask[list(self.results)] = False
        return np.flatnonzero(mask)

    def random_unknown(self) -> int:
        return int(self.rng.choice(self.unknown()))
