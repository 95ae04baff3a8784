"""The numbers that a row can hold. SQLite stores NaN as null, and such a row does not agree with its checksum."""

from __future__ import annotations

import math
from collections.abc import Mapping

LONGEST_LEASE = 1e9  # seconds, 31 years: a time after the year 9999 could not be read


def double(name: str, value: float) -> float:
    """`value` as a column of doubles holds it. Raises ValueError for a whole number that is too large."""
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{name!r} must be at most 1.8e308, but got a larger whole number.") from None


def check_finite(objectives: Mapping[str, float]) -> None:
    """Raise ValueError if an objective is not finite: such a unit must be recorded as failed."""
    for name, value in objectives.items():
        if not math.isfinite(double(name, value)):
            raise ValueError(f"Objective {name!r} must be finite, but got {value!r}: record the unit as failed.")


def check_amount(name: str, value: float | None) -> None:
    """Raise ValueError if a time or a cost is not finite or is below 0. None is not known."""
    if value is not None and not 0 <= double(name, value) < math.inf:
        raise ValueError(f"{name!r} must be a finite number of at least 0, but got {value!r}.")


def check_lease(seconds: float) -> None:
    """Raise ValueError if no time of a row can be that many seconds from now."""
    if not abs(double("seconds", seconds)) <= LONGEST_LEASE:
        raise ValueError(f"A lease has at most {LONGEST_LEASE:.0f} seconds, but got {seconds!r}.")
