"""Scores by document: how a metric of held-out data is made up of the scores of independent documents.

A document is a piece of held-out data that is independent of the others: a file, a record, an example. The spread
between documents is part of the uncertainty of a score. This module imports neither torch nor the store. D documents.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

GROUPS = 2_000  # entries at most, if a task scores examples: more of them are joined into groups


@dataclass(frozen=True, eq=False)
class Documents:
    """The score of each document in one metric; the metric of all of them is sum(totals) / sum(weights).

    names: [D] distinct strings. totals, weights: [D] float64, such as the bits and the bytes of each document. Totals
    may be infinite or not a number, as the metric is then. Raises ValueError if the lengths differ, a name occurs
    twice, or a weight is not a finite number above 0.
    """

    metric: str
    names: tuple[str, ...]
    totals: np.ndarray
    weights: np.ndarray

    def __post_init__(self) -> None:
        for name, value in (("names", tuple(map(str, self.names))), *((n, _floats(n, self)) for n in NUMBERS)):
            object.__setattr__(self, name, value)
        lengths = (len(self.names), len(self.totals), len(self.weights))
        if len(set(lengths)) != 1 or lengths[0] == 0:
            raise ValueError(f"Documents need equally many names, totals and weights, at least 1, but got {lengths}.")
        if len(set(self.names)) < len(self.names):
            twice = next(name for place, name in enumerate(self.names) if name in self.names[:place])
            raise ValueError(f"The names of documents must be distinct, but {twice!r} occurs twice.")
        if not (np.isfinite(self.weights).all() and (self.weights > 0).all()):
            raise ValueError("The weights of documents must be finite and above 0.")

    @property
    def value(self) -> float:
        """The metric of all documents together."""
        return float(self.totals.sum()) / math.fsum(self.weights)

    @property
    def values(self) -> np.ndarray:
        """The metric of each document, [D]."""
        return self.totals / self.weights

    def to_dict(self) -> dict[str, Any]:
        """Plain data that `from_dict` reads, for JSON."""
        numbers = {name: getattr(self, name).tolist() for name in NUMBERS}
        return {"metric": self.metric, "names": list(self.names), **numbers}

    @staticmethod
    def from_dict(data: dict[str, Any]) -> Documents:
        """The documents that `to_dict` wrote. Raises ValueError as the constructor does."""
        return Documents(data["metric"], tuple(data["names"]), data["totals"], data["weights"])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Documents) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash((self.metric, self.names))


NUMBERS = ("totals", "weights")


def _floats(name: str, documents: Documents) -> np.ndarray:
    numbers = np.array(getattr(documents, name), np.float64)
    if numbers.ndim != 1:
        raise ValueError(f"The {name} of documents must be a list of numbers, but got the shape {numbers.shape}.")
    return numbers


@dataclass(frozen=True)
class Evaluation:
    """What a model reached on held-out data: `metrics` by name, and some of them by document if the task knows them."""

    metrics: dict[str, float]
    documents: Documents | tuple[Documents, ...] | None = None

    @property
    def every(self) -> tuple[Documents, ...]:
        """The documents in each metric that has them."""
        return (self.documents,) if isinstance(self.documents, Documents) else tuple(self.documents or ())

    def scored_in(self, metric: str | None) -> Documents | None:
        """The documents in `metric`, else in the first metric that has them; None if there are none."""
        return next((each for each in self.every if each.metric == metric), next(iter(self.every), None))


class Tally:
    """Adds up totals and weights by document while batches are evaluated.

    names: of all documents, by their number; None names example k "example k", and joins neighbours into groups if
    there are more than `GROUPS` examples.
    """

    def __init__(self, names: Iterable[str] | None = None) -> None:
        self.names = None if names is None else tuple(names)
        self._sums = np.zeros((2, 0 if self.names is None else len(self.names)))  # totals and weights

    def add(self, documents: np.ndarray, totals: np.ndarray, weights: np.ndarray | None = None) -> None:
        """Add N scores: the number of the document of each, its total, and its weight (1 each if None). All [N]."""
        ones = np.ones(len(documents)) if weights is None else weights
        size = int(documents.max(initial=-1)) + 1
        if size > self._sums.shape[1]:
            self._sums = np.pad(self._sums, ((0, 0), (0, size - self._sums.shape[1])))
        for row, numbers in enumerate((totals, ones)):
            self._sums[row] += np.bincount(documents, numbers, minlength=self._sums.shape[1])

    def documents(self, metric: str) -> Documents:
        """The sums by document; documents without weight are left out. Raises ValueError if nothing was added."""
        names, sums = self.names, self._sums
        if names is None:
            size = -(-sums.shape[1] // GROUPS)
            names = tuple(_named(first, size, sums.shape[1]) for first in range(0, sums.shape[1], size))
            sums = np.add.reduceat(sums, np.arange(0, sums.shape[1], size), axis=1)
        seen = np.flatnonzero(sums[1] > 0)
        return Documents(metric, tuple(names[place] for place in seen), sums[0, seen], sums[1, seen])


def _named(first: int, size: int, count: int) -> str:
    last = min(first + size, count) - 1
    return f"example {first}" if size == 1 else f"examples {first} to {last}"
