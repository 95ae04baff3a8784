"""A table for benchmarks of strategies: a space, the values of its points, and a score."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from nas import pareto
from nas.strategies.contract import Evaluate

Values = tuple[float, ...]
Name = TypeVar("Name")


@dataclass
class Table:
    """A table. name: on the command line. title: in a report.

    space: a `Space`, or an object with its interface. values: the objectives of a point, all minimised; raises KeyError
    if the architecture fails. evaluate: returns the objectives that need no training; None if all need it. score: the
    quality of all values found so far; 1 is the optimum. budgets: the numbers of evaluations at which the score is
    reported. snap: returns the point to evaluate in place of a proposal, given the used hashes and rows; None evaluates
    the proposal itself.
    """

    name: str
    title: str
    space: Any
    values: Callable[[Any], Values]
    score: Callable[[Sequence[Values]], float]
    objectives: int = 2
    evaluate: Evaluate | None = None
    budgets: tuple[int, ...] = (50, 100, 200, 500)
    snap: Callable[[Any, set[str]], Any] | None = None
    targets: dict[int, float] = field(default_factory=dict)


class Missing(Exception):
    """The data of a table, or a package that it needs, are not on this machine."""


def folder() -> Path:
    """The folder of the recorded data."""
    return Path(os.environ.get("NAS_DATA", Path(__file__).parents[3] / "shared" / "data"))


def found(*parts: str) -> Path:
    """A file of the recorded data. Raises Missing if it is not there."""
    path = folder().joinpath(*parts)
    if not path.exists():
        raise Missing(f"{path} is missing; set NAS_DATA to the folder that holds {parts[0]}/.")
    return path


def scaled(rows: dict[Name, Values]) -> dict[Name, Values]:
    """The rows with each column scaled to 0..1 over the table."""
    lows = [min(column) for column in zip(*rows.values())]
    spans = [(max(column) - low) or 1.0 for column, low in zip(zip(*rows.values()), lows)]
    return {key: tuple((value - low) / span for value, low, span in zip(row, lows, spans)) for key, row in rows.items()}


def relative_hypervolume(all_values: Sequence[Values]) -> Callable[[Sequence[Values]], float]:
    """The score of values scaled to 0..1: their hypervolume relative to that of all; the reference is (1, 1, ...)."""
    corner = (1.0,) * len(all_values[0])
    whole = pareto.hypervolume(list(all_values), corner)
    return lambda values: pareto.hypervolume(list(values), corner) / whole


def share_of_front(all_values: Sequence[Values]) -> Callable[[Sequence[Values]], float]:
    """The score of values: the share of the exact front that is among them; 1 if the front is complete."""
    exact = {tuple(all_values[index]) for index in pareto.front(list(all_values))}
    return lambda values: len(exact & set(map(tuple, values))) / len(exact)
