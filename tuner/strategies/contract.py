"""The contract of a tuning strategy: it proposes the next configuration to measure, given the results so far.

A strategy is pure: it is seeded, does no I/O, and gives the same proposals for the same results. A configuration is its
number in the space.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from tuner.space import TuningSpace

SHORTEST = 1e-6  # milliseconds; replaces a measured time of zero, which has no logarithm


@dataclass(frozen=True)
class Hints:
    """Times of N configurations on D other devices; see `tuner.search.transfer`. times: [D, N], logarithms of
    milliseconds relative to the fastest on each device. weights: [D], positive, with sum one: the likeness of each
    device to this one."""

    times: np.ndarray
    weights: np.ndarray


class Strategy(ABC):
    """first: configurations to propose first, such as the default. hints: from other devices; a strategy may use them.

    Raises ValueError for hints of another shape, or that are not finite.
    """

    def __init__(
        self, space: TuningSpace, seed: int = 0, first: tuple[int, ...] = (), hints: Hints | None = None
    ) -> None:
        if hints is not None and hints.times.shape != (len(hints.weights), len(space)):
            shape = (len(hints.weights), len(space))
            raise ValueError(
                f"hints must be {shape}, a number for each device and configuration, got {hints.times.shape}."
            )
        if hints is not None and not (np.isfinite(hints.times).all() and np.isfinite(hints.weights).all()):
            raise ValueError("hints must be finite numbers; a configuration that failed elsewhere counts as slow.")
        self.space = space
        self.hints = hints
        self.rng = np.random.default_rng(seed)
        self.first = list(dict.fromkeys(first))
        self.results: dict[int, float | None] = {}  # milliseconds by number, None for one that failed

    def ask(self) -> int | None:
        """The next configuration to measure, never a known one; None if all are known."""
        while self.first:
            if (number := self.first.pop(0)) not in self.results:
                return number
        return self.propose() if len(self.results) < len(self.space) else None

    def tell(self, number: int, milliseconds: float | None) -> None:
        """Report the result of a configuration; None if it did not compile, was wrong, or crashed."""
        self.results[number] = None if milliseconds is None else max(milliseconds, SHORTEST)

    @abstractmethod
    def propose(self) -> int:
        """An unknown configuration; there is at least one."""

    def upcoming(self, asked: int) -> list[int]:
        """What will be proposed after `asked`, as far as that is known; it may be compiled in advance."""
        return list(self.first)

    @property
    def best(self) -> int | None:
        """The fastest configuration so far, None if there is none."""
        valid = {number: value for number, value in self.results.items() if value is not None}
        return min(valid, key=lambda number: (valid[number], number)) if valid else None

    def unknown(self) -> np.ndarray:
        """The unknown configurations, in order."""
        mask = np.ones(len(self.space), dtype=bool)
        mask[list(self.results)] = False
        return np.flatnonzero(mask)

    def random_unknown(self) -> int:
        return int(self.rng.choice(self.unknown()))
