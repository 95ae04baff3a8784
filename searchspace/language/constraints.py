"""Reads bounds on costs: `constraints: {parameters: {max: 5M}}`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from searchspace.cost import ADDED
from searchspace.errors import SpaceError, nearest
from searchspace.language import documents
from searchspace.language.documents import Document, Path_, describe
from searchspace.tree import Mark

QUANTITIES = (*(name for name in ADDED if name != "estimates"), "active_parameters", "state_bytes_per_token")

Report = Callable[[str, Path_], Any]  # records a problem at a path


@dataclass(frozen=True)
class Constraint:
    """A bound on the cost of an architecture: low <= quantity <= high; None is no bound."""

    quantity: str
    low: float | None
    high: float | None
    mark: Mark | None = field(default=None, compare=False, repr=False)


def read(document: Document, data: Any, path: Path_, report: Report) -> tuple[Constraint, ...]:
    """The constraints at `path` of a document. Problems are passed to `report`."""
    if data is None:
        return ()
    if not isinstance(data, dict):
        report(f"Expected `quantity: {{max: 5M}}`, found {describe(data)}.", path)
        return ()
    read = (_constraint(document, quantity, bound, (*path, quantity), report) for quantity, bound in data.items())
    return tuple(constraint for constraint in read if constraint)


def _constraint(document: Document, quantity: str, data: Any, path: Path_, report: Report) -> Constraint | None:
    if quantity not in QUANTITIES:
        near = nearest(quantity, QUANTITIES)
        report(f"No quantity is called {quantity!r}.{near} Known: {', '.join(QUANTITIES)}.", path)
        return None
    bounds = data if isinstance(data, dict) else {"max": data}
    for key in bounds:
        if key not in ("min", "max"):
            report(f"A constraint has min and max, not {key!r}.{nearest(key, ('min', 'max'))}", (*path, key))
    if not bounds.keys() & {"min", "max"}:
        report("A constraint needs min, max or both.", path)
        return None
    at = path if bounds is not data else None
    low, high = (_bound(bounds[key], at or (*path, key), report) if key in bounds else None for key in ("min", "max"))
    if low is not None and high is not None and low > high:
        report(f"min must not exceed max, but got min={low}, max={high}.", path)
    return Constraint(quantity, low, high, document.mark(path))


def _bound(data: Any, path: Path_, report: Report) -> float | None:
    try:
        bound = documents.number(data)
    except SpaceError as error:
        report(str(error), path)
        return None
    if bound < 0:
        report(f"Expected a number of 0 or more, found {bound}.", path)
    return bound
